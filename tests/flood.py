"""A neighbour that floods a site with bulletins, in a process of its own: ``python flood.py PORT SITE.TOML KIND``."""

import asyncio
import json
import sys
import time
from pathlib import Path
from types import SimpleNamespace

from fedbandit.agent.core.bulletin import Signed
from fedbandit.agent.gossip.links import word
from fedbandit.agent.gossip.signatures import Signatures, fingerprint
from fedbandit.agent.gossip.tls import TlsFiles
from fedbandit.agent.process.addresses import Address
from fedbandit.agent.process.config import read_config
from links_network import BoardSite, Caller

PER_SECOND = {"slow": 16.0, "forged": 1e9, "new": 1e9, "same": 1e9}


async def flood(port, config, kind):
    """As east, which north knows: bulletins whose signature is wrong, or good ones without end, or one without end."""
    certificates = config.path.parent.parent / "certs"
    tls = TlsFiles(*((certificates / it).read_bytes() for it in ("east.crt", "east.key", "ca.crt")))
    north = SimpleNamespace(name="north", address=Address("127.0.0.1", port))
    site, signatures, mark = BoardSite("east", config.terms), Signatures(tls, time.time), fingerprint(tls.certificate)
    body = site.body()
    good = Signed(body, *signatures.sign(body))
    while kind == "nobody":  # as much work for this machine, and nothing for north
        body = site.body()
        Signed(body, *signatures.sign(body))
    while True:
        try:
            async with Caller(north, tls, word(config.terms.digest(), "north")) as caller:
                caller.have("east", config.terms)
                while not caller.ended:
                    if kind != "same":
                        body = site.body()
                    signed = Signed(body, *signatures.sign(body)) if kind == "new" else good
                    is_forged = kind in ("slow", "forged")
                    caller.bulletin(Signed(body, bytes(70), good.signer) if is_forged else signed, mark)
                    await asyncio.sleep(1.0 / PER_SECOND[kind])
                    while not caller.connection.has_room and not caller.ended:
                        await asyncio.sleep(0.001)
        except OSError:
            await asyncio.sleep(0)


if __name__ == "__main__":
    print(json.dumps("begun"), flush=True)  # noqa: T201
    asyncio.run(flood(int(sys.argv[1]), read_config(Path(sys.argv[2])), sys.argv[3]))
