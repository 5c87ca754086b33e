"""The gates: one module a level or stage. `gpu_actors.gates.registry` lists them all in order."""
