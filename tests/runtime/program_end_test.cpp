#include "runtime/program_end.h"

#include <fstream>
#include <sstream>

#include "tests/test.h"

using namespace flatshard;

TEST_CASE("a program whose output is lost fails, with one line that says why") {
  std::ofstream full("/dev/full");
  full << "text";
  std::ostringstream out, err;
  CHECK(end_program("name", 0, out, err) == 0);
  CHECK(err.str().empty());
  CHECK(end_program("name", 0, full, err, 2) == 2);
  CHECK(err.str() == "name: cannot write the output: No space left on device\n");
  std::ostringstream again;
  CHECK(end_program("name", 0, full, again) == 1);
  CHECK(again.str() == "name: cannot write the output\n");
}
