#include "runtime/processor.h"

#include <sstream>

#include "tests/test.h"

using namespace flatshard;

TEST_CASE("the kind of a processor is that of the first one that Linux lists") {
  const auto kind = [](const char* text) {
    std::istringstream in(text);
    return read_processor_kind(in);
  };
  CHECK(kind("processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\n"
             "model name\t: Intel(R) Xeon(R) Platinum 8480C\nflags\t\t:\n\n"
             "processor\t: 1\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 17\n") ==
        ProcessorKind{"GenuineIntel", 6, 143});
  CHECK(kind("processor\t: 0\nBogoMIPS\t: 243.75\nCPU implementer\t: 0x41\n") == ProcessorKind{});
  CHECK(kind("vendor_id : AuthenticAMD\nmodel : x\n:\n") == ProcessorKind{"AuthenticAMD", 0, 0});
  CHECK(kind("") == ProcessorKind{});
}
