// fuzz_files --target=NAME [libFuzzer's options] [FOLDER ...]: libFuzzer runs one of the targets of
// file_targets.h and stores inputs that reach new code in the first folder. Built by the preset fuzz.

#include <cstdint>
#include <cstdlib>
#include <iostream>

#include "runtime/log.h"
#include "runtime/parallel.h"
#include "tests/fuzz/file_targets.h"

using namespace flatshard;

namespace {

const test::FileTarget* chosen = nullptr;

}  // namespace

// Names required by libFuzzer.
extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  constexpr std::string_view kOption = "--target=";
  try {
    std::string_view name;
    for (int i = 1; i < *argc; ++i)
      if (const std::string_view word = (*argv)[i]; word.starts_with(kOption))
        name = word.substr(kOption.size());
    chosen = &test::file_target(name);
    configure_log(LogLevel::quiet);
    set_thread_count(1);  // a process of libFuzzer is one of several
  } catch (const Error& error) {
    std::cerr << "fuzz_files: --target: " << error.what() << '\n';
    std::exit(1);
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  chosen->run(std::as_bytes(std::span(data, size)));
  return 0;
}
