"""All cases of the contract, by name."""

from contract import database_cases, kv_cases, storage_cases
from contract.contract_do import Case

CASES: dict[str, Case] = {
    found.name: found
    for module in (storage_cases, database_cases, kv_cases)
    for found in vars(module).values()
    if isinstance(found, Case)
}
