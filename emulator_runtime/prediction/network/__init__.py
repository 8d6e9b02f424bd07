"""What collectives take on a topology, alone and beside others."""
