#include "text/data/image_loader.h"

#include <filesystem>
#include <fstream>
#include <numeric>

#include "tests/test.h"
#include "tests/text/data/image_tokens.h"
#include "text/data/data.h"
#include "text/images/image_file.h"
#include "text/images/image_source.h"

using namespace flatshard;
namespace fs = std::filesystem;

namespace {

using test::picture;

// Patches and positions of an image, without a loader.
struct Patches {
  std::vector<float> patches;
  std::vector<int32_t> positions;
  bool operator==(const Patches&) const = default;
};
Patches patches_of(const std::string& path) {
  const ImageRules rules = test::small_image_input().rules;
  const std::string file = read_image({.path = path});
  const Image image = decoded(std::as_bytes(std::span(file)));
  const ImageLayout layout = layout_of(rules, {image.width, image.height});
  Patches made{std::vector<float>(static_cast<size_t>(layout.patches * 48)),
               std::vector<int32_t>(static_cast<size_t>(layout.patches))};
  write_patches(rules, layout, image, made.patches.data(), made.positions.data());
  return made;
}
void append(Patches& all, const Patches& more) {
  all.patches.insert(all.patches.end(), more.patches.begin(), more.patches.end());
  all.positions.insert(all.positions.end(), more.positions.begin(), more.positions.end());
}

std::vector<LaneImage> images_of(const TokenFile& file, int64_t begin, int64_t end) {
  std::vector<LaneImage> images;
  for (const TokenImage& image : file.images()->images_in(begin, end)) images.push_back({&file, image, 0});
  return images;
}

Patches load(ImageLoader& loader, int64_t lane, const std::vector<LaneImage>& images) {
  int64_t patches = 0;
  for (const LaneImage& image : images) patches += image.image.extent.patches;
  Patches made{std::vector<float>(static_cast<size_t>(patches * 48)),
               std::vector<int32_t>(static_cast<size_t>(patches))};
  loader.load(lane, images, made.patches.data(), made.positions.data());
  return made;
}

const std::vector<std::string> kPictures{picture("rgb.jpeg"), picture("orientation_6.jpeg"),
                                         picture("rgb_8.png"), picture("rgb.webp")};

}  // namespace

TEST_CASE("a loader gives the same patches whatever it expected") {
  test::write_image_tokens("loader.tok", {{kPictures}, {{kPictures[1]}}, {{kPictures[2], kPictures[0]}}});
  const TokenFile file("loader.tok");
  Patches expected;
  for (const std::string& path : kPictures) append(expected, patches_of(path));
  const auto first = images_of(file, 0, 18), others = images_of(file, 18, 100);
  REQUIRE(first.size() == 4);
  REQUIRE(others.size() == 3);
  ImageLoader loader;
  CHECK(load(loader, 0, first) == expected);
  for (int i = 0; i < 20; ++i) {
    loader.expect(0, first);
    loader.expect(1, others);
    CHECK(load(loader, 0, first) == expected);  // as expected
    CHECK(load(loader, 1, first) == expected);  // expected others
    CHECK(load(loader, 2, first) == expected);  // expected nothing
    loader.expect(0, others);
    loader.expect(0, first);  // instead
    CHECK(load(loader, 0, first) == expected);
    loader.expect(3, first);  // is never asked for
  }
  CHECK(load(loader, 3, {}).positions.empty());
}

TEST_CASE("the error of an image that was expected names it and its record, when it is wanted") {
  fs::copy_file(picture("rgb.jpeg"), "first.jpeg");
  fs::copy_file(picture("gray.jpeg"), "second.jpeg");
  test::write_image_tokens("gone.tok", {{{"first.jpeg", "second.jpeg", kPictures[0]}}});
  const TokenFile file("gone.tok");
  fs::remove("first.jpeg");
  std::ofstream("second.jpeg", std::ios::app) << 'x';
  const auto all = images_of(file, 0, 100);
  ImageLoader loader;
  for (const bool expects : {false, true}) {
    if (expects) loader.expect(0, all);
    CHECK(test::missing_from(test::error_of([&] { load(loader, 0, all); }),
                             {"first.jpeg: ", "No such file", "chats.jsonl:1"}) == "");
    CHECK(test::error_of([&] { load(loader, 0, {all[1]}); }) ==
          "second.jpeg of chats.jsonl:1: has changed since gone.tok was made: make it again with prepare");
  }
  CHECK(load(loader, 0, {all[2]}) == patches_of(kPictures[0]));
}

TEST_CASE("an image that does not decode is refused by its name when it is loaded") {
  const std::string whole = read_image({.path = picture("rgb.jpeg")}),
                    cut = whole.substr(0, whole.size() - 60);
  std::ofstream("cut.jpeg", std::ios::binary) << cut;
  ImageFacts facts = facts_of({.bytes = whole});
  facts.bytes = std::ssize(cut);
  facts.fingerprint = image_fingerprint(cut);
  const ImageInput input = test::small_image_input();
  const ImageLayout layout = layout_of(input.rules, facts.size);
  TokenWriter writer("cut.tok", 100);
  writer.set_manifest(R"({"images":)" + to_json(input) + "}");
  std::vector<int32_t> tokens(static_cast<size_t>(layout.tokens), input.token);
  const ImageExtent extent{.end = layout.tokens,
                           .tokens = layout.tokens,
                           .frames = std::ssize(layout.frames),
                           .patches = layout.patches};
  const DocumentImage image{
      .extent = extent, .source = {.path = "cut.jpeg"}, .facts = facts, .where = "chats.jsonl:1"};
  tokens.push_back(1);
  writer.add_document(tokens, {}, {&image, 1});
  writer.finish();
  const TokenFile file("cut.tok");
  ImageLoader loader;
  CHECK(test::missing_from(test::error_of([&] { load(loader, 0, images_of(file, 0, 9)); }),
                           {"cut.jpeg of chats.jsonl:1: is truncated"}) == "");
}

namespace {

// Space for a lane of a model that reads images.
struct Space {
  Space(const DataOptions& options, const ImageRules& rules)
      : most(most_images(rules, options)),
        text(static_cast<size_t>(4 * options.lane_sequences * options.seq_len + 1)),
        patches(static_cast<size_t>(most.patches * most.width)),
        indices(static_cast<size_t>(most.patches + most.frames + 1 + most.rows)) {
    const int64_t n = options.lane_sequences * options.seq_len;
    int32_t* const t = text.data();
    int32_t* const i = indices.data();
    batch = {.tokens = tensor_of(t, {n}),
             .positions = tensor_of(t + n, {n}),
             .targets = tensor_of(t + 2 * n, {n}),
             .boundaries = tensor_of(t + 3 * n, {n + 1}),
             .images = {.patches = tensor_of(patches.data(), {most.patches, most.width}),
                        .patch_positions = tensor_of(i, {1, most.patches}),
                        .frames = tensor_of(i + most.patches, {most.frames + 1}),
                        .rows = tensor_of(i + most.patches + most.frames + 1, {most.rows})}};
  }
  ImageSizes most;
  std::vector<int32_t> text;
  std::vector<float> patches;
  std::vector<int32_t> indices;
  Batch batch;
};

template <class T>
std::vector<T> values(const Tensor& t) {
  return {t.as<T>(), t.as<T>() + t.size()};
}

}  // namespace

TEST_CASE("a lane has the patches, frames and rows of its images in the order of their tokens") {
  test::write_image_tokens("lane.tok", {{{kPictures[0]}, 6}, {{kPictures[1], kPictures[2]}, 2}, {{}, 3}});
  const TokenFile file("lane.tok");
  const Patches a = patches_of(kPictures[0]), b = patches_of(kPictures[1]), c = patches_of(kPictures[2]);
  for (const Padding padding : {Padding::right, Padding::left}) {
    const DataOptions options{.seq_len = 12,
                              .lane_sequences = 3,
                              .total_sequences = 3,
                              .packing = {.packing = Packing::none, .padding = padding, .max_patches = 32},
                              .shuffle = false};
    const Data data(file, options);
    Space space(options, file.image_input().rules);
    CHECK(space.most == ImageSizes{.patches = 96, .width = 48, .axes = 1, .frames = 18, .rows = 36});
    const Batch batch = data.read(0, 0, space.batch);
    Patches expected = a;
    append(expected, b);
    append(expected, c);
    CHECK(values<float>(batch.images.patches) == expected.patches);
    CHECK(values<int32_t>(batch.images.patch_positions) == expected.positions);
    const auto first = static_cast<int32_t>(a.positions.size()),
               second = first + static_cast<int32_t>(b.positions.size()),
               all = second + static_cast<int32_t>(c.positions.size());
    CHECK(values<int32_t>(batch.images.frames) == std::vector<int32_t>{0, first, second, all});
    const int32_t shift = padding == Padding::left ? 2 : 0;
    CHECK(values<int32_t>(batch.images.rows) ==
          std::vector<int32_t>{1 + shift, 2 + shift, 13 + shift, 14 + shift, 17 + shift, 18 + shift});
    for (const int32_t row : values<int32_t>(batch.images.rows)) CHECK(batch.tokens.as<int32_t>()[row] == 90);
  }
}

TEST_CASE("images of a lane are a function of the position, whatever was read before") {
  std::vector<test::ImageDocument> documents;
  for (int i = 0; i < 17; ++i)
    documents.push_back({i % 3 == 0 ? std::vector<std::string>{}
                                    : std::vector<std::string>(static_cast<size_t>(i % 3),
                                                               kPictures[static_cast<size_t>(i) % 4]),
                         2 + i % 5});
  test::write_image_tokens("many.tok", documents);
  const TokenFile file("many.tok");
  const DataOptions options{.seq_len = 24,
                            .lane_sequences = 1,
                            .total_sequences = 2,
                            .packing = {.packing = Packing::best_fit, .max_patches = 40},
                            .seed = 3};
  const Data in_order(file, options);
  struct Read {
    std::vector<float> patches;
    std::vector<int32_t> positions, frames, rows, tokens;
    bool operator==(const Read&) const = default;
  };
  const auto read = [&](const Data& data, int64_t step, int64_t lane) {
    Space space(options, file.image_input().rules);
    const Batch batch = data.read(step, lane, space.batch);
    return Read{values<float>(batch.images.patches), values<int32_t>(batch.images.patch_positions),
                values<int32_t>(batch.images.frames), values<int32_t>(batch.images.rows),
                values<int32_t>(batch.tokens)};
  };
  bool with_images = false, without = false;
  std::vector<Read> all;
  for (int64_t step = 0; step < 12; ++step)
    for (int64_t lane = 0; lane < 2; ++lane) {
      all.push_back(read(in_order, step, lane));
      (all.back().rows.empty() ? without : with_images) = true;
      CHECK(all.back().frames.back() == std::ssize(all.back().positions));
    }
  CHECK(with_images);
  const Data jumping(file, options);
  for (int64_t i = 0; i < 24; ++i) {
    const int64_t at = i * 7 % 24;
    CHECK(read(jumping, at / 2, at % 2) == all[static_cast<size_t>(at)]);
  }
}

TEST_CASE("a lane of texts has no images, and of a model of text no tensors of images") {
  test::write_image_tokens("texts.tok", {{{}, 5}, {{kPictures[0]}, 2}});
  const TokenFile file("texts.tok");
  const DataOptions options{.seq_len = 8, .packing = {.packing = Packing::none}, .shuffle = false};
  const Data data(file, options);
  Space space(options, file.image_input().rules);
  const ImageBatch images = data.read(0, 0, space.batch).images;
  CHECK(images.patches.shape == Shape{0, 48});
  CHECK(images.patch_positions.shape == Shape{1, 0});
  CHECK(values<int32_t>(images.frames) == std::vector<int32_t>{0});
  CHECK(images.rows.empty());
  CHECK(data.read(1, 0, space.batch).images.rows.size() == 2);
  space.batch.images = {};
  CHECK(data.read(1, 0, space.batch).images.patches.empty());
}
