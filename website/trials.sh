#!/bin/sh
# Run every Split-MNIST and Split-Fashion-MNIST trial behind the docs and update their tables:
#   sh website/trials.sh [STORE]
# Trials that the store has are not run again.
set -eu
cd "$(dirname "$0")/.."
export REMASK_STORE="${1:-out/docs.db}"

remask reproduce main,low-buffer,ablation,confidence
remask reproduce appendix
remask reproduce gap
remask run --benchmark split-mnist --method pnn-independent --trials 10
remask run --benchmark split-mnist --method icarl-dark,er_ace --buffer 200,500,5120 --trials 10

# docs/beyond.md and docs/which-m.md
for data in split-mnist split-fashion-mnist; do
  run="remask run --benchmark $data --trials 10"
  $run --method er_ema --buffer 50,200,500,5120 --mask auto,none,0
  $run --method cls_er --buffer 200,500,5120
  $run --method er --buffer 200,500,5120 --mask none,-inf
  $run --method derpp --buffer 200,500,5120 --mask none,-inf,-1
  $run --method er,derpp --buffer 200,500 --mask auto
  $run --method er_ema --buffer 50,200,500,5120 --mask auto,none,0 --memory merging
done
mnist="remask run --benchmark split-mnist --trials 10"
$mnist --method lode,er_las --buffer 200,500,5120
$mnist --method er_ema --buffer 200,500,5120 --seed 20
$mnist --method er_ema --buffer 200,500,5120 --memory merging --lr 0.2
$mnist --method er_ema --buffer 200,500,5120 --memory merging --lr 0.2 --seed 20
$mnist --method er_ema --buffer 200,500,5120 --fade 0
$mnist --method er_ema --buffer 200,500,5120 --alpha 0
$mnist --method er --buffer 200,500 --mask none,-inf --memory merging
$mnist --method derpp --buffer 200,500 --mask none,-1 --memory merging
$mnist --method cls_er --buffer 200,500 --memory merging
remask run --benchmark split-fashion-mnist --trials 10 --method er_ema --buffer 200,500 --lr 0.1

python website/tables.py --store "$REMASK_STORE"
