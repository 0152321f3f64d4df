#pragma once
// Mutated configurations: mostly valid TOML with a few changes (bytes flipped, lines swapped, sections
// repeated, values of every type, deep nesting, odd UTF-8), and similar overrides. An input is a function of
// (seed, number), so a failure is reproduced by its number.

#include <cstdint>
#include <string>
#include <vector>

#include "tests/fuzz/dice.h"

namespace flatshard::test {

struct ConfigInput {
  std::string toml;
  std::vector<std::string> overrides;  // overrides for load_config: "section.key=value"
};

ConfigInput mutated_config(uint64_t seed, int64_t number);

// The parts of an input: one change of a text, and one override.
void change_toml(std::string& text, Dice& dice);
std::string odd_override(Dice& dice);

}  // namespace flatshard::test
