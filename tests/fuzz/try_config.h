#pragma once
// What must hold for every configuration, however odd: it loads or it is refused with an Error of one line,
// and what loads prints to TOML that loads back to the same text. Shared by fuzz_train and by the test that
// runs a few hundred inputs of it.

#include <cstdint>
#include <string>

#include "tests/fuzz/mutate.h"

namespace flatshard::test {

// How many inputs came how far: a fuzzer whose inputs are all refused tests little.
struct Tally {
  int64_t inputs = 0, loaded = 0, resolved = 0;
};

// Writes the input's TOML to `file` and tries it. Throws std::logic_error that says which promise is broken.
// A further thing that must survive every input is called from here, with the config that loaded.
void try_config(const ConfigInput& input, const std::string& file, Tally& tally);

}  // namespace flatshard::test
