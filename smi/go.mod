module emugpu.dev/smi

go 1.21
