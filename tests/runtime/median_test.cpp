#include "runtime/median.h"

#include "tests/test.h"

using namespace flatshard;

TEST_CASE("the median is the value in the middle, of an even count the upper one") {
  CHECK(median<int>({7}) == 7);
  CHECK(median<double>({5, 1, 100}) == 5);
  CHECK(median<double>({4, 1, 3, 2}) == 3);
}
