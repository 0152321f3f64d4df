# shellcheck shell=bash
# What bench/on_gpu writes beside the stages' own files, sourced by it: clocks, how the stages ended, and README.md.

# The GPU's clocks and power twice a second, for as long as it is let, each line with the stage's name before it.
sample_clocks() { # STAGE
  local file=$OUT/clocks.csv
  [ -f "$file" ] || echo "stage, time, SM MHz, memory MHz, W, C, % busy" >"$file"
  while true; do
    nvidia-smi --id=0 --query-gpu=timestamp,clocks.sm,clocks.mem,power.draw,temperature.gpu,utilization.gpu \
      --format=csv,noheader,nounits 2>/dev/null | sed "s/^/$1, /" >>"$file"
    sleep 0.5
  done
}

# Replaces the line of a stage in results.tsv: stage, seconds, result.
set_result() { # STAGE SECONDS RESULT
  local file=$OUT/results.tsv
  touch "$file"
  { grep -v "^$1	" "$file" || true; } >"$file.tmp"
  printf '%s\t%s\t%s\n' "$1" "$2" "$3" >>"$file.tmp"
  mv "$file.tmp" "$file"
}

# "1980 (1830..1980)": the median of what was sampled while the GPU was busy, and the range; "" of nothing.
clocks_of() { # STAGE COLUMN
  [ -f "$OUT/clocks.csv" ] || return 0
  awk -F', ' -v stage="$1" -v column="$2" '$1 == stage && $7 > 0 { print $column }' "$OUT/clocks.csv" | sort -n | awk '
    { at[NR] = $1 }
    END { if (NR) printf "%.0f (%.0f..%.0f)", at[int((NR + 1) / 2)], at[1], at[NR] }'
}

# The part of a stage's log that belongs in the report: of long ones the telling lines, and the end where it went wrong.
excerpt() { # STAGE
  local log=$OUT/logs/$1.txt
  case "$1" in
    build) sed -n '/^-- Flatshard/,/^-- Configuring/{/^-- Configuring/d;s/^-- //;p}' "$log" ;;
    tests) ;;
    *) cat "$log" && return ;;
  esac
  if [ "$1" = tests ] || ! grep -q "^$1	.*	passed" "$OUT/results.tsv"; then tail -n 20 "$log"; fi
}

write_report() { # of all $stages
  local stage line seconds result
  {
    if [ -n "$DRY" ]; then
      echo "# A dry run, of no worth, $(date +%F), commit $COMMIT"
    else
      echo "# $(gpu_says name), $(date +%F), commit $COMMIT"
    fi
    printf '\nWritten by\n\n'
    sed 's/^/    /' "$OUT/logs/commands.txt"
    printf '\n| stage | result | seconds | SM clock, MHz | power, W |\n|---|---|---|---|---|\n'
    # shellcheck disable=SC2154
    for stage in $stages; do
      line=$(grep "^$stage	" "$OUT/results.tsv") || line="$stage		missing: not run"
      IFS=$'\t' read -r _ seconds result <<<"${line/		/	-	}"
      echo "| $stage | $result | $seconds | $(clocks_of "$stage" 3) | $(clocks_of "$stage" 5) |"
    done
    printf '\nA clock is the median, with the least and the greatest, while the GPU was busy; clocks.csv has them all.\n'
    for stage in $stages; do
      if [ -s "$OUT/logs/$stage.txt" ]; then
        printf '\n## %s\n\n```\n' "$stage"
        excerpt "$stage"
        printf '```\n'
      fi
    done
  } >"$OUT/README.md.tmp"
  mv "$OUT/README.md.tmp" "$OUT/README.md"
}
