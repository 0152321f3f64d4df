#include "text/data/token_images.h"

#include <filesystem>
#include <fstream>

#include "source_dir.h"
#include "tests/checkpoint_content.h"
#include "tests/test.h"
#include "text/data/token_file.h"

using namespace flatshard;
namespace fs = std::filesystem;

namespace {

std::string picture(const std::string& name) { return str(kSourceDir, "/tests/golden/images/", name); }

ImageInput input() { return {.rules = {.shortest_edge = 14}, .token = 9}; }

std::string manifest() { return R"({"images":)" + to_json(input()) + "}"; }

DocumentImage image(const ImageSource& source, int64_t begin) {
  return {.extent = {.begin = begin, .end = begin + 3, .tokens = 2, .frames = 1, .patches = 4},
          .source = source,
          .facts = facts_of(source),
          .where = "chats.jsonl:7"};
}

// Documents of 5 tokens, each with one of the images.
void write(const std::string& path, const std::vector<ImageSource>& sources) {
  TokenWriter writer(path, 10);
  writer.set_manifest(manifest());
  const std::vector<int32_t> tokens{1, 9, 9, 2, 3};
  for (const ImageSource& source : sources) {
    const std::vector<DocumentImage> images{image(source, 1)};
    writer.add_document(tokens, {}, images);
  }
  writer.add_document(tokens);
  writer.finish();
}

// The file of a table, changed at some byte.
std::string error_with(const std::string& path, int64_t at, const std::string& bytes) {
  std::string file = test::read_file(path);
  file.replace(static_cast<size_t>(at < 0 ? std::ssize(file) + at : at), bytes.size(), bytes);
  std::ofstream("damaged.tok", std::ios::binary) << file;
  return test::error_of([] { TokenFile("damaged.tok"); });
}

}  // namespace

TEST_CASE("images of a token file come back with their bytes, from files and from records") {
  const std::string bytes = test::read_file(picture("rgb.webp"));
  write("i.tok", {{.path = picture("rgb.jpeg")},
                  {.bytes = bytes},
                  {.path = picture("gray_1.png"), .is_object = true},
                  {.bytes = bytes}});
  const TokenFile file("i.tok");
  REQUIRE(file.has_images());
  CHECK(file.image_input() == input());
  CHECK(file.size() == 25);
  const ImageTable& table = *file.images();
  CHECK(table.size() == 4);
  std::vector<TokenImage> all;
  table.each([&](const TokenImage& image) { all.push_back(image); });
  REQUIRE(all.size() == 4);
  CHECK(all[1].extent == ImageExtent{.begin = 6, .end = 9, .tokens = 2, .frames = 1, .patches = 4});
  CHECK(table.read(all[0]) == test::read_file(picture("rgb.jpeg")));
  CHECK(table.read(all[1]) == bytes);
  CHECK(table.read(all[3]) == bytes);
  for (size_t i = 0; i < all.size(); ++i) CHECK(all[i].facts.is_object == (i == 2));
  CHECK(fs::file_size("i.tok.images") == 8 + bytes.size());  // images that are alike are there once
  CHECK(all[0].facts.size == ImageSize{29, 19});
  CHECK(table.name_of(all[0]) == picture("rgb.jpeg") + " of chats.jsonl:7");
  CHECK(table.name_of(all[1]) == "the image of chats.jsonl:7");
}

TEST_CASE("the images of some tokens are found among many") {
  write("many.tok", std::vector<ImageSource>(200, {.path = picture("rgb.jpeg")}));
  const TokenFile file("many.tok");
  for (const auto& [begin, end, first, count] : {std::array<int64_t, 4>{0, 1000, 0, 200},
                                                 {0, 1, 0, 0},
                                                 {1, 2, 0, 1},
                                                 {2, 7, 1, 1},
                                                 {319, 400, 64, 16},
                                                 {996, 1005, 199, 1},
                                                 {997, 1005, 0, 0}}) {
    CAPTURE(begin);
    const std::vector<TokenImage> found = file.images()->images_in(begin, end);
    REQUIRE(std::ssize(found) == count);
    if (count > 0) CHECK(found[0].extent.begin == 5 * first + 1);
  }
  const TokenFile part("many.tok", 3);
  CHECK(part.size() == 15);
}

TEST_CASE("a token file without images is of the version before, to the byte") {
  const std::vector<int32_t> tokens{1, 2, 3};
  TokenWriter writer("none.tok", 10);
  writer.add_document(tokens, {}, {});
  writer.finish();
  CHECK(test::read_file("none.tok").starts_with("FLATTOK2"));
  CHECK_FALSE(TokenFile("none.tok").has_images());
  CHECK_FALSE(fs::exists("none.tok.images"));
}

TEST_CASE("a token file can be moved together with images below its folder") {
  fs::create_directories("set/photos");
  fs::copy_file(picture("rgb.jpeg"), "set/photos/a.jpeg");
  write("set/i.tok", {{.path = "set/photos/a.jpeg"}, {.bytes = test::read_file(picture("rgb.webp"))}});
  fs::rename("set", "moved_set");
  const TokenFile file("moved_set/i.tok");
  file.images()->each([&](const TokenImage& image) { CHECK_FALSE(file.images()->read(image).empty()); });
  fs::remove("moved_set/i.tok.images");
  CHECK(test::missing_from(
            test::error_of([] { TokenFile("moved_set/i.tok"); }),
            {"moved_set/i.tok.images: is missing", "copy it, too, or make it again with prepare"}) == "");
}

TEST_CASE("an image that has changed or is gone is refused with its record and what to do") {
  fs::copy_file(picture("rgb.jpeg"), "a.jpeg");
  write("c.tok", {{.path = "a.jpeg"}});
  const TokenFile file("c.tok");
  const TokenImage image = file.images()->images_in(0, 5).at(0);
  const auto error = [&] { return test::error_of([&] { file.images()->read(image); }); };
  CHECK(error() == "");
  std::ofstream("a.jpeg", std::ios::app) << 'x';
  CHECK(error() == "a.jpeg of chats.jsonl:7: has changed since c.tok was made: make it again with prepare");
  std::string middle = test::read_file(picture("rgb.jpeg"));
  ++middle[middle.size() / 2];
  std::ofstream("a.jpeg", std::ios::binary) << middle;
  CHECK(error().find("has changed") != std::string::npos);
  fs::copy_file(picture("gray.jpeg"), "a.jpeg", fs::copy_options::overwrite_existing);
  CHECK(error().find("has changed") != std::string::npos);
  fs::remove("a.jpeg");
  CHECK(test::missing_from(error(), {"a.jpeg: ", "No such file", "(an image of chats.jsonl:7)"}) == "");
}

TEST_CASE("images of an earlier version are compared by their ends") {
  fs::copy_file(picture("rgb.jpeg"), "e.jpeg");
  write("e.tok", {{.path = "e.jpeg"}});
  std::string file = test::read_file("e.tok"), image = test::read_file("e.jpeg");
  const uint64_t print = image_ends_fingerprint(image);
  const size_t record = file.find("e.jpeg") - size_t{ImageTable::kRecordBytes};
  file.replace(record + 44, 4, std::string(4, '\0'));
  file.replace(record + 56, 8, reinterpret_cast<const char*>(&print), 8);
  file.resize(static_cast<size_t>(content_bytes(InputFile("e.tok"))));
  std::ofstream("e.tok", std::ios::binary) << file;
  const TokenFile tokens("e.tok");
  CHECK(tokens.note_on_sums().starts_with("e.tok: has no checksums"));
  const TokenImage of_file = tokens.images()->images_in(0, 5).at(0);
  CHECK(tokens.images()->read(of_file) == image);
  image.back() = 'x';
  std::ofstream("e.jpeg", std::ios::binary) << image;
  CHECK(test::error_of([&] { tokens.images()->read(of_file); }).find("has changed") != std::string::npos);
}

TEST_CASE("a damaged table of images is refused") {
  write("d.tok", {{.path = picture("rgb.jpeg")}, {.path = picture("gray.jpeg")}});
  CHECK(error_with("d.tok", 48, "\x02").find("is damaged between byte 0 and byte ") != std::string::npos);
  fs::resize_file("d.tok", static_cast<uintmax_t>(content_bytes(InputFile("d.tok"))));  // without checksums
  const int64_t size = std::ssize(test::read_file("d.tok")), manifest_bytes = std::ssize(manifest());
  const int64_t table = 48 + 32 + 8 * 4;  // behind 15 tokens of 2 bytes, padded, and 4 starts
  CHECK(error_with("d.tok", 0, "F") == "");
  CHECK(error_with("d.tok", -manifest_bytes - 24, "\x03").find("is damaged: the table of its images has") !=
        std::string::npos);
  CHECK(error_with("d.tok", table, "\x09").find("its image 0 is not where the table says") !=
        std::string::npos);
  CHECK(error_with("d.tok", table + 80, "\x01").find("its image 1 is not") != std::string::npos);
  CHECK(error_with("d.tok", table + 36, std::string("\xff\xff", 2)).find("its image 0 is not") !=
        std::string::npos);
  CHECK(error_with("d.tok", table + 36, std::string(4, '\0')).find("its image 0 is not") !=
        std::string::npos);
  CHECK(error_with("d.tok", size - manifest_bytes + 2, "X").find("does not say how they are read") !=
        std::string::npos);
  fs::resize_file("d.tok", static_cast<uintmax_t>(size - 1));
  CHECK(test::error_of([] { TokenFile("d.tok"); }).find("damaged") != std::string::npos);
}
