#include "kernels/tuned_products.h"

#include "tests/test.h"

using namespace flatshard;

namespace {

TunedProducts products_in(const std::string& text, const std::string& library = "L 1") {
  return {"G", library, text, "file"};
}

}  // namespace

TEST_CASE("a file of timed products is read as it was written, with the lines of other devices") {
  TunedProducts here = products_in("");
  CHECK(here.name().empty());
  here.add("8 8 8", {1, 2, 3, 4, 5, 6, 7, UINT64_MAX}, 12.345);
  here.add("8 8 9", {}, 1);
  TunedProducts newer = products_in(here.text(), "L 2");
  CHECK(newer.size() == 0);
  CHECK_FALSE(newer.find("8 8 8"));
  newer.add("8 8 8", {9}, 2);
  const TunedProducts again = products_in(newer.text());
  CHECK(again.size() == 2);
  CHECK(again.text() == newer.text());
  REQUIRE(again.find("8 8 8"));
  CHECK(*again.find("8 8 8") == TunedProducts::Algorithm{1, 2, 3, 4, 5, 6, 7, UINT64_MAX});
  CHECK_FALSE(again.find("8 8"));
}

TEST_CASE("a set of algorithms is named after what is used here, not after its timings") {
  TunedProducts one = products_in(""), slower = products_in(""), other = products_in("");
  one.add("8 8 8", {1}, 1);
  slower.add("8 8 8", {1}, 2);
  other.add("8 8 8", {2}, 1);
  CHECK(one.name().size() == 8);
  CHECK(slower.name() == one.name());
  CHECK(other.name() != one.name());
  CHECK(products_in(one.text(), "L 2").name().empty());
}

TEST_CASE("a malformed line of a file of timed products is an error that names it") {
  const std::string algorithm(128, '0'), good = "G\tL 1\t8 8 8\t" + algorithm + "\t1.5\n";
  CHECK(products_in(good).size() == 1);
  for (const std::string& bad :
       {std::string("{}"), "G\tL 1\t8 8 8\t" + algorithm, "G\tL 1\t8 8 8\t" + algorithm.substr(1) + "\t1",
        "G\tL 1\t8 8 8\t" + algorithm.substr(1) + "x\t1", "G\tL 1\t8 8 8\t" + algorithm + "\tfast",
        "G\tL 1\t8 8 8\t" + algorithm + "\t1\tmore"}) {
    CAPTURE(bad);
    CHECK(test::error_of([&] {
            products_in(good + bad + "\n");
          }).find("file:2: must be device, library, product") == 0);
  }
}
