#pragma once
// Configurations that nobody would write: mostly valid TOML with a few things done to it (bytes flipped,
// lines swapped, sections repeated, values of every kind, deep nesting, odd UTF-8), and overrides of the same
// sort. An input is a function of (seed, number), so that a failure is found again by its number.

#include <cstdint>
#include <string>
#include <vector>

#include "tests/fuzz/dice.h"

namespace flatshard::test {

struct ConfigInput {
  std::string toml;
  std::vector<std::string> overrides;  // as load_config takes them: "section.key=value"
};

ConfigInput mutated_config(uint64_t seed, int64_t number);

// The parts it is made of: one thing done to a text, and one override.
void change_toml(std::string& text, Dice& dice);
std::string odd_override(Dice& dice);

}  // namespace flatshard::test
