#!/bin/sh
# Traces each program once and makes its profile: examples/traced-12/profiles.sh OUT, with a Python that has PyTorch in PATH.
set -e
out=${1:?name a folder for the traces}
here=$(dirname "$0")
rm -f "$here/profiles.json"
for pair in resnet=32 language=32 segmentation=16 recommendation=4096; do
    name=${pair%=*} batch=${pair#*=}
    emugpu trace --gpu-type T4 --out "$out/$name" -- python3 "$here/programs/$name.py" --batch "$batch" --steps 12
    emugpu profile from-trace "$name" "$batch=$out/$name" --gpu T4 --steps 12 --out "$here/profiles.json"
done
