#include "text/chat/image_text.h"

#include "tests/test.h"

using namespace flatshard;

namespace {

constexpr const char* kFake = "<fake_token_around_image>";

// One frame of two tokens.
ImageRules rules() {
  return {.family = ImageFamily::idefics2,
          .patch_size = 4,
          .longest_edge = 8,
          .shortest_edge = 4,
          .splits = false,
          .latents = 2};
}

std::vector<ShownImage> images(size_t count) {
  return std::vector<ShownImage>(count, {.source = {.path = "a.png"}, .size = {8, 8}});
}

// With F for each fake token, I for each <image>, and data in [ ].
std::string shown(std::string text, std::vector<TextSpan> data, size_t count, ImageRules rule = rules()) {
  const Rendering whole =
      with_image_text({.text = std::move(text), .data = std::move(data)}, images(count), rule);
  std::string marked;
  size_t done = 0;
  for (const TextSpan& span : whole.data) {
    marked += whole.text.substr(done, span.begin - done) + "[" +
              whole.text.substr(span.begin, span.end - span.begin) + "]";
    done = span.end;
  }
  marked += whole.text.substr(done);
  for (const auto& [from, to] : {std::pair<std::string, std::string>{kFake, "F"}, {"<image>", "I"}})
    for (size_t at; (at = marked.find(from)) != marked.npos;) marked.replace(at, from.size(), to);
  return marked;
}

}  // namespace

TEST_CASE("<image> of a template becomes the tokens of an image, and that of data does not") {
  const Rendering rendering{.text = "User:<image> <image>?", .data = {{13, 21, 0}}};
  CHECK(count_images(rendering, rules()) == 1);
  const Rendering whole = with_image_text(rendering, images(1), rules());
  CHECK(whole.text == str("User:", kFake, "<image><image>", kFake, " <image>?"));
  REQUIRE(whole.images.size() == 1);
  CHECK(whole.images[0].begin == 5);
  CHECK(whole.images[0].end == whole.text.size() - 9);
  CHECK(whole.data[0].end == whole.text.size());
}

TEST_CASE("an image that cannot be cut into frames is refused by its name") {
  ImageRules quarters = rules();
  quarters.splits = true;
  std::vector<ShownImage> shown = images(2);
  shown[1] = {.source = {.path = "thin.png"}, .size = {9, 1}};
  CHECK(test::error_of([&] {
          with_image_text({.text = "<image><image>"}, shown, quarters);
        }).starts_with("thin.png: has 9 x 1 pixels"));
}

TEST_CASE("images that follow each other share a token, and texts that touch them begin with a space") {
  CHECK(shown("<image><image>", {}, 2) == "FIIFIIF");
  CHECK(shown("<image>\n<image>", {}, 2) == "FIIF\nFIIF");
  CHECK(shown("<image>What", {{7, 11, 0}}, 1) == "FIIF [What]");
  CHECK(shown("<image> What", {{7, 12, 0}}, 1) == "FIIF[ What]");
  CHECK(shown("<image>\xc2\xa0What", {{7, 13, 0}}, 1) == "FIIF[\xc2\xa0What]");
  CHECK(shown("<image>\xe4\xbd\xa0", {{7, 10, 0}}, 1) == "FIIF [\xe4\xbd\xa0]");
  CHECK(shown("<image><b>", {{7, 10, 0}}, 1) == "FIIF[<b>]");
  CHECK(shown("a<image>b<image>c", {{0, 1, 0}, {8, 9, 0}, {16, 17, 1}}, 2) == "[a]FIIF [b]FIIF [c]");
}

TEST_CASE("texts that touch images of idefics3 stay as they are") {
  const ImageRules three{
      .family = ImageFamily::idefics3, .patch_size = 4, .longest_edge = 8, .frame_edge = 8, .scale = 1};
  CHECK(shown("<image><image>a", {{14, 15, 0}}, 2, three) == "F<global-img>IIIIFF<global-img>IIIIF[a]");
}

TEST_CASE("a template that does not show every image is refused") {
  const Rendering rendering{.text = "a<image>"};
  for (const size_t count : {size_t{0}, size_t{2}})
    CHECK(test::error_of([&] {
            with_image_text(rendering, images(count), rules());
          }).starts_with(str("the chat template shows 1 of ", count, " images: use the template")));
}
