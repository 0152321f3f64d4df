#pragma once
// Checks the invariants of every configuration: it loads, or is refused with an Error of one line; a loaded
// one prints as TOML that loads back to the same text. Shared by fuzz_train and the test that runs a few
// hundred inputs.

#include <cstdint>
#include <string>

#include "tests/fuzz/mutate.h"

namespace flatshard::test {

// The number of inputs by outcome: a fuzzer whose inputs are all refused tests little.
struct Tally {
  int64_t inputs = 0, loaded = 0, resolved = 0;
};

// Writes the input's TOML to `file` and tries it. Throws a std::logic_error that names a violated invariant.
// To fuzz another function of a config, call it here with the loaded config.
void try_config(const ConfigInput& input, const std::string& file, Tally& tally);

}  // namespace flatshard::test
