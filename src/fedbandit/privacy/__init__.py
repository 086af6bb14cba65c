"""What protects people: noise, mechanisms, the ledger of what was released, and attacks that test them."""
