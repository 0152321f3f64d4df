#include "text/images/resize.h"

#include <cstdlib>
#include <fstream>

#include "runtime/named.h"
#include "source_dir.h"
#include "tests/test.h"
#include "tests/text/images/pixels.h"

using namespace flatshard;

namespace {

// A line of a file that tests/golden/resize.py has written.
struct Resize {
  int64_t width, height, new_width, new_height;
  std::string filter, hash;
};

std::vector<Resize> read_resizes(const std::string& path) {
  std::ifstream in(path);
  std::vector<Resize> all;
  for (Resize r; in >> r.width >> r.height >> r.new_width >> r.new_height >> r.filter >> r.hash;)
    all.push_back(r);
  return all;
}

std::string hash_after(const Resize& r, uint64_t seed) {
  const Image image = test::noise(r.width, r.height, seed);
  return test::hash_of(resized(image, r.new_width, r.new_height, named<ResizeFilter>(r.filter).value()));
}

}  // namespace

TEST_CASE("an image is resized to the bits of Pillow 13") {
  const char* const other = std::getenv("FLATSHARD_RESIZES");
  const std::vector<Resize> resizes =
      read_resizes(other ? other : str(kSourceDir, "/tests/golden/resize.txt"));
  REQUIRE(resizes.size() > 80);
  size_t different = 0;
  for (size_t i = 0; i < resizes.size(); ++i) {
    const Resize& r = resizes[i];
    CAPTURE(str(r.width, " x ", r.height, " to ", r.new_width, " x ", r.new_height, ", ", r.filter));
    const std::string hash = hash_after(r, i);
    CHECK(hash == r.hash);
    different += hash != r.hash;
  }
  CHECK(different == 0);
}

TEST_CASE("a size below 1 or above the bound is refused") {
  const Image image = test::noise(4, 3, 1);
  for (const int64_t side : {int64_t{0}, int64_t{-1}, kMaxImageSide + 1})
    CHECK(test::missing_from(test::error_of([&] { resized(image, side, 3, ResizeFilter::bicubic); }),
                             {"4 x 3", str(side, " x 3"), str(kMaxImageSide)}) == "");
  CHECK(test::error_of([] { resized({}, 2, 2, ResizeFilter::lanczos); }) != "");
}
