"""MABWiser behind FastAPI and uvicorn, with the agent's own paths: what one writes to serve it. In memory only."""

import itertools
import sys
from random import Random

import uvicorn
from fastapi import FastAPI, Response
from mabwiser.mab import MAB, LearningPolicy
from pydantic import BaseModel
from task import NUM_ARMS

app = FastAPI()
arms = list(range(NUM_ARMS))
mab = MAB(arms, LearningPolicy.UCB1(alpha=1.0), seed=0)
mab.fit(arms, [Random(k).random() for k in arms])
numbers, given = itertools.count(), dict[str, int]()


class Reward(BaseModel):
    """What came of a decision."""

    value: float


@app.post("/v1/decisions", status_code=201)
async def decide() -> dict[str, str | int]:
    """Choose an arm."""
    name, arm = f"d{next(numbers)}", int(mab.predict())
    given[name] = arm
    return {"id": name, "arm": arm}


@app.put("/v1/decisions/{name}/reward", status_code=204)
async def reward(name: str, body: Reward) -> Response:
    """Learn."""
    mab.partial_fit([given.pop(name)], [body.value])
    return Response(status_code=204)


if __name__ == "__main__":
    uvicorn.run(app, port=int(sys.argv[1]), log_level="warning", access_log=False, http="httptools", loop="asyncio")
