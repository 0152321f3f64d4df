#include "text/images/image_rules.h"

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "runtime/named.h"
#include "source_dir.h"
#include "tests/test.h"
#include "tests/text/images/pixels.h"

using namespace flatshard;

namespace {

std::string golden(const std::string& name) { return str(kSourceDir, "/tests/golden/", name); }

// A line of tests/golden/image_rules.py.
struct Seen {
  ImageRules rules;
  ImageSize image;
  uint64_t seed;
  int64_t frame_rows, frame_columns, frames, patches, tokens;
  std::string rows, positions, text;  // hashes
};

std::istream& operator>>(std::istream& in, Seen& s) {
  std::string family, filter;
  int64_t image_size, units;
  in >> family >> s.rules.splits >> s.rules.patch_size >> image_size >> s.rules.longest_edge >>
      s.rules.shortest_edge;
  in >> s.rules.frame_edge >> units >> filter >> s.image.width >> s.image.height >> s.seed >> s.frame_rows;
  in >> s.frame_columns >> s.frames >> s.patches >> s.tokens >> s.rows >> s.positions >> s.text;
  if (!in) return in;
  s.rules.family = named<ImageFamily>(family).value();
  s.rules.filter = named<ResizeFilter>(filter).value();
  s.rules.position_side = image_size / s.rules.patch_size;
  (s.rules.family == ImageFamily::idefics2 ? s.rules.latents : s.rules.scale) = units;
  s.rules.most_pixels = s.rules.longest_edge;  // of qwen2_vl
  s.rules.fewest_pixels = s.rules.shortest_edge;
  s.rules.mean = s.rules.by_squares() ? kClipMean : ImageRules().mean;
  s.rules.std = s.rules.by_squares() ? kClipStd : ImageRules().std;
  return in;
}

std::vector<Seen> read_seen(const std::string& path) {
  std::ifstream in(path);
  std::vector<Seen> all;
  for (Seen s; in >> s;) all.push_back(s);
  return all;
}

template <class T>
std::string hash_of_all(const std::vector<T>& values) {
  return test::hash_of(std::as_bytes(std::span(values)));
}

std::string error_of(const ImageRules& rules, ImageSize image) {
  return test::error_of([&] { layout_of(rules, image); });
}

}  // namespace

TEST_CASE("a model sees of an image what the processors of transformers make of it") {
  const char* const other = std::getenv("FLATSHARD_IMAGE_RULES");
  const std::vector<Seen> all = read_seen(other ? other : golden("image_rules.txt"));
  REQUIRE(all.size() >= 40);
  for (size_t i = 0; i < all.size(); ++i) {
    const Seen& seen = all[i];
    CAPTURE(i);
    const ImageLayout layout = layout_of(seen.rules, seen.image);
    CHECK(layout.frame_rows == seen.frame_rows);
    CHECK(layout.frame_columns == seen.frame_columns);
    CHECK(std::ssize(layout.frames) == seen.frames);
    CHECK(layout.tokens == seen.tokens);
    REQUIRE(layout.patches == seen.patches);
    const std::string text = expansion(seen.rules, layout);
    CHECK(test::hash_of(std::as_bytes(std::span(text))) == seen.text);
    CHECK(layout.patches <= most_patches(seen.rules));
    std::vector<float> rows(static_cast<size_t>(layout.patches * seen.rules.patch_width()));
    std::vector<int32_t> positions(static_cast<size_t>(layout.patches * seen.rules.axes()));
    write_patches(seen.rules, layout, test::noise(seen.image.width, seen.image.height, seen.seed),
                  rows.data(), positions.data(), layout.patches);
    CHECK(hash_of_all(rows) == seen.rows);
    CHECK(hash_of_all(positions) == seen.positions);
  }
}

TEST_CASE("patches of every grid have the positions of the model") {
  std::ifstream in(golden("image_positions.txt"));
  size_t grids = 0;
  for (std::string line; std::getline(in, line); ++grids) {
    std::istringstream numbers(line);
    int64_t side = 0, n = 0;
    numbers >> side >> n;
    std::vector<int32_t> expected;
    for (int32_t bucket = 0; numbers >> bucket;) expected.push_back(bucket);
    CAPTURE(side);
    CAPTURE(n);
    CHECK(position_buckets(n, side) == expected);
  }
  CHECK(grids == 5 * 70);
}

TEST_CASE("sides of images between the fewest and the most pixels keep their ratio") {
  const ImageRules rules{.family = ImageFamily::qwen2_vl};
  const auto size_of = [&](ImageSize image) { return layout_of(rules, image).frames.front().size; };
  CHECK(size_of({98, 70}) == ImageSize{112, 56});  // 3.5 and 2.5 squares: to even ones
  CHECK(size_of({4000, 3000}) == ImageSize{1148, 840});
  CHECK(size_of({10, 10}) == ImageSize{56, 56});
  CHECK(test::missing_from(error_of(rules, {10, 2001}), {"10 x 2001", "200"}) == "");
  CHECK(error_of(rules, {10, 2000}) == "");
}

TEST_CASE("the text of an image names its frames") {
  ImageRules rules{.family = ImageFamily::idefics3,
                   .patch_size = 2,
                   .position_side = 4,
                   .longest_edge = 16,
                   .frame_edge = 8,
                   .scale = 4};
  const std::string f = "<fake_token_around_image>", i = "<image>";
  CHECK(expansion(rules, layout_of(rules, {40, 20})) ==
        f + "<row_1_col_1>" + i + f + "<row_1_col_2>" + i + "\n\n" + f + "<global-img>" + i + f);
  rules.splits = false;
  CHECK(expansion(rules, layout_of(rules, {40, 20})) == f + "<global-img>" + i + f);
  const ImageRules idefics2{.splits = true, .latents = 2};
  CHECK(expansion(idefics2, layout_of(idefics2, {40, 20})) ==
        f + i + i + f + i + i + f + i + i + f + i + i + f + i + i + f);
}

TEST_CASE("rules that contradict each other, and images that they do not fit, are refused") {
  CHECK(test::missing_from(error_of({.splits = true}, {1, 50}), {"1 x 50", "2 x 2"}) == "");
  CHECK(error_of({.splits = false}, {1, 50}) == "");
  CHECK(test::missing_from(error_of({.patch_size = 0}, {9, 9}), {"patches, 0"}) == "");
  CHECK(test::missing_from(error_of({.shortest_edge = 13}, {9, 9}), {"shortest_edge", "13", "14"}) == "");
  CHECK(test::missing_from(error_of({.family = ImageFamily::idefics3, .frame_edge = 378, .scale = 2}, {9, 9}),
                           {"378", "14", "scale_factor = 2"}) == "");
  const ImageRules rules;
  CHECK(test::missing_from(
            error_of({.family = ImageFamily::qwen2_vl, .fewest_pixels = 9, .most_pixels = 8}, {9, 9}),
            {"9 to 8"}) == "");
  CHECK(test::missing_from(error_of({.family = ImageFamily::qwen2_vl, .most_pixels = 17'000'000}, {9, 9}),
                           {"17000000", "4096"}) == "");
  const Image other = test::noise(8, 6, 1);
  CHECK(test::missing_from(test::error_of([&] {
                             write_patches(rules, layout_of(rules, {8, 8}), other, nullptr, nullptr);
                           }),
                           {"8 x 6", "8 x 8"}) == "");
}
