#include "text/images/image_source.h"

#include <filesystem>
#include <fstream>

#include "source_dir.h"
#include "tests/checkpoint_content.h"
#include "tests/test.h"

using namespace flatshard;

namespace {

std::string picture(const std::string& name) { return str(kSourceDir, "/tests/golden/images/", name); }

std::string error_of(const ImageSource& image) {
  return test::error_of([&] { facts_of(image); });
}

}  // namespace

TEST_CASE("the facts of an image are the same in a file and in a record") {
  for (const char* const name : {"rgb.jpeg", "orientation_6.jpeg", "turned_at_the_end.png", "rgb.webp"}) {
    CAPTURE(name);
    const std::string bytes = test::read_file(picture(name));
    const ImageFacts file = facts_of({.path = picture(name)}), record = facts_of({.bytes = bytes});
    CHECK(file.size == record.size);
    CHECK(file.bytes == std::ssize(bytes));
    CHECK(file.fingerprint == record.fingerprint);
    CHECK(record.fingerprint == image_fingerprint(bytes));
    CHECK(read_image({.path = picture(name)}) == bytes);
  }
}

TEST_CASE("the fingerprint of an image changes with every byte") {
  std::string file(20000, 'x');
  const uint64_t before = image_fingerprint(file);
  CHECK(image_fingerprint(file + "x") != before);
  for (const size_t at : {size_t{0}, size_t{4095}, size_t{10000}, size_t{15904}, size_t{19999}}) {
    std::string changed = file;
    changed[at] = 'y';
    CHECK(image_fingerprint(changed) != before);
  }
  CHECK(image_fingerprint("") != image_fingerprint("a"));
  file[10000] = 'y';
  CHECK(image_ends_fingerprint(file) == image_ends_fingerprint(std::string(20000, 'x')));
}

TEST_CASE("an image whose pixels do not decode is refused, though its header is sound") {
  std::string bytes = test::read_file(picture("rgb_8.png"));
  bytes[bytes.size() - 40] ^= 1;
  CHECK(test::missing_from(error_of({.bytes = bytes}), {"an image of ", "damaged PNG", "replace it"}) == "");
  std::ofstream("damaged.png", std::ios::binary) << bytes;
  CHECK(error_of({.path = "damaged.png"}).starts_with("damaged.png: is a damaged PNG"));
}

TEST_CASE("an image that cannot be read is refused by its name") {
  CHECK(error_of({}).starts_with("an image has neither a path nor bytes: write its path"));
  CHECK(error_of({.path = "no such.png"}).starts_with("no such.png: "));
  std::ofstream("empty.png");
  CHECK(error_of({.path = "empty.png"}) == "empty.png: is empty: convert it to JPEG or PNG");
  CHECK(error_of({.bytes = "GIF89a"}) == "an image of 6 bytes: is a GIF: convert it to JPEG or PNG");
}
