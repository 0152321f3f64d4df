#include "text/images/image_file.h"

#include <cstdlib>
#include <fstream>

#include "source_dir.h"
#include "tests/checkpoint_content.h"
#include "tests/test.h"
#include "tests/text/images/pixels.h"

using namespace flatshard;

namespace {

std::string images_folder() {
  const char* const other = std::getenv("FLATSHARD_IMAGES");
  return other ? other : str(kSourceDir, "/tests/golden/images");
}

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }
std::string image(const std::string& name) {
  return test::read_file(str(kSourceDir, "/tests/golden/images/", name));
}
std::string error_of(const std::string& file, int64_t max_pixels = kMaxImagePixels) {
  return test::error_of([&] { decoded(bytes_of(file), Transparency::ignored, max_pixels); });
}

// Whether the build lacks the library for this kind of file.
bool is_unreadable(const std::string& name) {
  return error_of(image(name)).find("this build cannot read") != std::string::npos;
}
bool lacks_image_libraries() {
  const bool lacks = is_unreadable("gray.jpeg") || is_unreadable("rgb_8.png") || is_unreadable("rgb.webp");
  if (lacks) test::skip("this build lacks a library for images");
  return lacks;
}

struct Listed {  // by tests/golden/images.py
  std::string name;
  ImageSize size;
  std::string hash, over_white;
};

std::vector<Listed> listed_images() {
  std::ifstream in(images_folder() + "/images.txt");
  std::vector<Listed> all;
  for (Listed i; in >> i.name >> i.size.width >> i.size.height >> i.hash >> i.over_white;) all.push_back(i);
  return all;
}

}  // namespace

TEST_CASE("a file of an image is decoded to the bits of Pillow") {
  if (lacks_image_libraries()) return;
  const std::vector<Listed> images = listed_images();
  REQUIRE(images.size() > 50);
  for (const Listed& listed : images) {
    CAPTURE(listed.name);
    const std::string file = test::read_file(images_folder() + "/" + listed.name);
    const Image picture = decoded(bytes_of(file));
    CHECK(ImageSize{picture.width, picture.height} == listed.size);
    CHECK(test::hash_of(picture) == listed.hash);
    CHECK(test::hash_of(decoded(bytes_of(file), Transparency::over_white)) == listed.over_white);
  }
}

TEST_CASE("pictures that no model is trained on are refused, with what to do") {
  const auto refused = [](const std::string& name, std::initializer_list<std::string> parts) {
    const std::string file = image(name);
    CAPTURE(name);
    CHECK(test::missing_from(error_of(file), parts) == "");
  };
  refused("cmyk.jpeg", {"CMYK", "convert it to RGB"});
  refused("animated.png", {"animation", "frames"});
  refused("animated.webp", {"animation", "frames"});
  refused("picture.gif", {"GIF", "convert it to JPEG or PNG"});
  CHECK(test::missing_from(error_of(""), {"empty"}) == "");
  CHECK(test::missing_from(error_of("<svg></svg>"), {"no JPEG, PNG or WebP"}) == "");
}

TEST_CASE("a file that ends early is refused wherever it ends") {
  if (lacks_image_libraries()) return;
  for (const char* name : {"subsampling_2.jpeg", "subsampling_2_progressive.jpeg", "orientation_6.jpeg",
                           "rgb_8.png", "palette_4_interlaced.png", "rgb.webp", "rgba_lossless.webp"}) {
    const std::string file = image(name);
    const size_t unneeded = std::string(name).ends_with("png") ? 12 : 0;  // the chunk that marks the end
    for (size_t size = 12; size + unneeded < file.size(); size += 1 + size / 40) {
      CAPTURE(name);
      CAPTURE(size);
      const std::string error = error_of(file.substr(0, size));
      CHECK((error.find("truncated") != error.npos || error.find("damaged") != error.npos));
    }
  }
}

TEST_CASE("a damaged file is decoded or refused, never more") {
  if (lacks_image_libraries()) return;
  for (const char* name :
       {"subsampling_1_progressive.jpeg", "restarts.jpeg", "rgba_16_interlaced.png", "rgba.webp"}) {
    const std::string whole = image(name);
    int refused = 0;
    for (size_t at = 0; at < whole.size(); at += 3) {
      std::string file = whole;
      file[at] = static_cast<char>(file[at] ^ (1 << at % 8));
      refused += !error_of(file, 1 << 20).empty();
    }
    CHECK_MESSAGE(refused > 0, name);
  }
}

TEST_CASE("a picture above the bound is refused before its pixels take memory") {
  const std::string small = image("rgb_8.png");  // of 11 x 9 pixels
  CHECK(test::missing_from(error_of(small, 98), {"11 x 9", "98", "smaller"}) == "");
  if (lacks_image_libraries()) return;
  CHECK(error_of(small, 99) == "");
  const auto with_sides = [](std::string file, size_t at, const std::string& sides) {
    return file.replace(at, sides.size(), sides);
  };
  const std::string bomb = with_sides(small, 16, std::string("\0\0\xff\xff\0\0\xff\xff", 8));
  CHECK(test::missing_from(error_of(bomb), {"65535 x 65535", str(kMaxImagePixels)}) == "");
  const std::string wide = with_sides(small, 16, std::string("\0\1\0\0\0\0\0\1", 8));
  CHECK(test::missing_from(error_of(wide), {"65536 x 1", str(kMaxImageSide)}) == "");
  const std::string none = with_sides(small, 16, std::string(8, '\0'));
  CHECK(test::missing_from(error_of(none), {"damaged PNG", "0 x 0"}) == "");
}
