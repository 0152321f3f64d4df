#include "text/data/packing.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "tests/test.h"
#include "tests/text/data/image_tokens.h"
#include "text/data/data.h"

using namespace flatshard;

namespace {

using Ints = std::vector<int32_t>;
using Rows = std::vector<Ints>;
constexpr const char* kPath = "packing_test.tok";

struct Document {
  Ints tokens;
  std::vector<uint8_t> trained{};
};

struct TempFile {
  explicit TempFile(const std::vector<Document>& documents) {
    TokenWriter writer(kPath, 100);
    for (const Document& d : documents) writer.add_document(d.tokens, d.trained);
    writer.finish();
  }
  ~TempFile() { std::filesystem::remove(kPath); }
};

// Lengths 5, 2, 3, 1.
std::vector<Document> four_documents() { return {{{1, 2, 3, 4, 5}}, {{6, 7}}, {{8, 9, 10}}, {{11}}}; }

struct Sequence {
  Ints tokens, targets, positions, boundaries;
};

std::vector<Sequence> sequences_of(const TokenFile& file, int64_t seq_len, PackingOptions packing) {
  const Data data(file, {.seq_len = seq_len, .packing = packing, .shuffle = false});
  std::vector<Sequence> found;
  for (int64_t i = 0; i < data.sequence_count(); ++i) {
    const auto n = static_cast<size_t>(seq_len);
    Sequence s{Ints(n), Ints(n), Ints(n), Ints(n + 1)};
    const Batch batch =
        data.read(i, 0,
                  {tensor_of(s.tokens.data(), {seq_len}), tensor_of(s.positions.data(), {seq_len}),
                   tensor_of(s.targets.data(), {seq_len}), tensor_of(s.boundaries.data(), {seq_len + 1})});
    s.boundaries.resize(static_cast<size_t>(batch.boundaries.size()));
    CHECK(data.target_count(i) ==
          std::count_if(s.targets.begin(), s.targets.end(), [](int32_t t) { return t >= 0; }));
    found.push_back(std::move(s));
  }
  return found;
}

Rows tokens_of(const std::vector<Sequence>& sequences) {
  Rows rows;
  for (const Sequence& s : sequences) rows.push_back(s.tokens);
  return rows;
}

}  // namespace

TEST_CASE("best_fit puts each document into the fullest sequence with enough room, longest first") {
  std::vector<Document> documents = four_documents();
  documents.back().tokens = {11, 12};  // a document of one token has no target
  const TempFile temp(documents);
  const TokenFile file(kPath);
  const std::vector<Sequence> found = sequences_of(file, 5, {.packing = Packing::best_fit});
  CHECK(tokens_of(found) == Rows{{1, 2, 3, 4, 5}, {8, 9, 10, 6, 7}, {11, 12, 0, 0, 0}});
  CHECK(found[1].targets == Ints{9, 10, -100, 7, -100});
  CHECK(found[1].positions == Ints{0, 1, 2, 0, 1});
  CHECK(found[1].boundaries == Ints{0, 3, 5});
  CHECK(found[2].targets == Ints{12, -100, -101, -101, -101});
  CHECK(found[2].positions == Ints{0, 1, 0, 1, 2});
  CHECK(found[2].boundaries == Ints{0, 2, 5});
}

TEST_CASE("best_fit truncates longer documents, best_fit_split splits them") {
  const TempFile temp({{{1, 2, 3, 4, 5, 6}}, {{7, 8}}, {{9, 10, 11}}});
  const TokenFile file(kPath);
  CHECK(tokens_of(sequences_of(file, 4, {.packing = Packing::best_fit})) ==
        Rows{{1, 2, 3, 4}, {9, 10, 11, 0}, {7, 8, 0, 0}});
  CHECK(
      tokens_of(sequences_of(file, 4, {.packing = Packing::best_fit, .truncation = Truncation::keep_end})) ==
      Rows{{3, 4, 5, 6}, {9, 10, 11, 0}, {7, 8, 0, 0}});
  CHECK(tokens_of(sequences_of(file, 4, {.packing = Packing::best_fit_split})) ==
        Rows{{1, 2, 3, 4}, {9, 10, 11, 0}, {5, 6, 7, 8}});
  const PackedSequences packed(file, {.packing = Packing::best_fit}, 4);
  CHECK(packed.losses().truncated == 1);
  CHECK(packed.losses().truncated_tokens == 2);
  CHECK(packed.used_tokens() == 9);
}

TEST_CASE("wrapped sequences are windows of the file") {
  const TempFile temp(four_documents());
  const TokenFile file(kPath);
  const std::vector<Sequence> found = sequences_of(file, 4, {.packing = Packing::wrapped});
  CHECK(tokens_of(found) == Rows{{1, 2, 3, 4}, {5, 6, 7, 8}});
  CHECK(found[0].targets == Ints{2, 3, 4, 5});
}

TEST_CASE("without packing each document has a sequence of its own, padded on either side") {
  const TempFile temp({{{1, 2, 3}}, {{4, 5}}});
  const TokenFile file(kPath);
  const std::vector<Sequence> right = sequences_of(file, 3, {.packing = Packing::none});
  CHECK(tokens_of(right) == Rows{{1, 2, 3}, {4, 5, 0}});
  CHECK(right[1].targets == Ints{5, -100, -101});
  CHECK(right[1].positions == Ints{0, 1, 0});
  const std::vector<Sequence> left =
      sequences_of(file, 3, {.packing = Packing::none, .padding = Padding::left});
  CHECK(tokens_of(left) == Rows{{1, 2, 3}, {0, 4, 5}});
  CHECK(left[1].targets == Ints{-101, 5, -100});
  CHECK(left[1].positions == Ints{0, 0, 1});
  CHECK(left[1].boundaries == Ints{0, 1, 3});
}

TEST_CASE("untrained tokens are never targets, with any packing") {
  const std::vector<Document> documents{
      {{1, 2, 3, 4}, {0, 0, 1, 1}}, {{5, 6}, {0, 0}}, {{7, 8, 9}}, {{10, 11, 12}, {0, 1, 0}}};
  const TempFile temp(documents);
  const TokenFile file(kPath);
  CHECK(file.has_mask());
  std::vector<uint8_t> trained(12);
  file.read_mask(0, trained);
  CHECK(trained == std::vector<uint8_t>{0, 0, 1, 1, 0, 0, 1, 1, 1, 0, 1, 0});
  CHECK(sequences_of(file, 4, {.packing = Packing::wrapped})[0].targets == Ints{-100, 3, 4, -100});
  CHECK(sequences_of(file, 4, {.packing = Packing::documents})[1].targets == Ints{-100, -100, 8, 9});
  const std::vector<Sequence> fitted = sequences_of(file, 4, {.packing = Packing::best_fit});
  CHECK(tokens_of(fitted) == Rows{{1, 2, 3, 4}, {7, 8, 9, 0}, {10, 11, 12, 0}});
  CHECK(fitted[0].targets == Ints{-100, 3, 4, -100});
  CHECK(fitted[2].targets == Ints{11, -100, -100, -101});
  CHECK(PackedSequences(file, {.packing = Packing::best_fit}, 4).losses().untrained == 1);
}

TEST_CASE("a file without a document to train on is refused") {
  const TempFile temp({{{1, 2, 3, 4}, {1, 0, 0, 1}}, {{}}});
  const TokenFile file(kPath);
  CHECK(test::error_of([&] { Data(file, {.seq_len = 3, .packing = {.packing = Packing::none}}); }) ==
        "packing_test.tok: none of its 2 documents has a token to train on within data.seq_len = 3");
}

TEST_CASE("a mask is read from any token, at any offset in the file") {
  std::vector<Document> documents;
  std::vector<uint8_t> expected;
  for (int i = 0; i < 40; ++i) {
    Document d;
    for (int t = 0; t < 1 + i % 13; ++t) {
      d.tokens.push_back(t);
      if (i >= 10) d.trained.push_back(static_cast<uint8_t>((i * 7 + t * 3) % 5 < 2));
      expected.push_back(i < 10 ? uint8_t{1} : d.trained.back());
    }
    documents.push_back(d);
  }
  const TempFile temp(documents);
  const TokenFile file(kPath);
  for (size_t begin = 0; begin < expected.size(); begin += 3)
    for (const size_t length : {size_t{0}, size_t{1}, size_t{9}, expected.size() - begin}) {
      if (begin + length > expected.size()) continue;
      std::vector<uint8_t> trained(length);
      file.read_mask(static_cast<int64_t>(begin), trained);
      REQUIRE(std::equal(trained.begin(), trained.end(), expected.begin() + static_cast<int64_t>(begin)));
    }
}

TEST_CASE("a token file of another version is refused, with what to do") {
  for (const char version : {'1', '4'}) {
    std::ofstream(kPath, std::ios::binary) << "FLATTOK" << version << std::string(64, '\0');
    CHECK(test::error_of([] { TokenFile file(kPath); }) ==
          "packing_test.tok: is a token file of another version: make it again with prepare");
  }
  std::filesystem::remove(kPath);
}

TEST_CASE("a token file keeps its manifest, and is refused if mask or manifest are damaged") {
  {
    TokenWriter writer(kPath, 10);
    writer.set_manifest("{\"tokenizer\": \"bytes\"}");
    writer.add_document(Ints{1, 2, 3}, std::vector<uint8_t>{0, 1, 1});
    CHECK(writer.trained() == 2);
    writer.finish();
  }
  CHECK(TokenFile(kPath).manifest() == "{\"tokenizer\": \"bytes\"}");
  CHECK(manifest_of(kPath) == TokenFile(kPath).manifest());
  const auto error_with = [](int64_t at, char byte) {
    std::fstream file(kPath, std::ios::binary | std::ios::in | std::ios::out);
    file.seekg(at);
    const char before = static_cast<char>(file.get());
    file.seekp(at);
    file.put(byte);
    file.flush();
    const std::string error = test::error_of([] { TokenFile bad(kPath); });
    file.seekp(at);
    file.put(before);
    return error;
  };
  CHECK(error_with(48, 5).find("is damaged between byte 0 and byte ") != std::string::npos);
  std::filesystem::resize_file(kPath, static_cast<uintmax_t>(content_bytes(InputFile(kPath))));
  CHECK(manifest_of(kPath) == TokenFile(kPath).manifest());  // of a file without checksums, too
  CHECK(error_with(32, 16) == "packing_test.tok: has a mask of 16 bytes, must have 8: it is damaged");
  CHECK(error_with(40, 1).find("it is cut off or damaged") != std::string::npos);
  CHECK(error_with(47, 127).find("it is cut off or damaged") != std::string::npos);
  CHECK(test::error_of([] { TokenFile good(kPath); }) == "");
  std::filesystem::remove(kPath);
}

namespace {

// A picture of 8 patches, 16 x 10 pixels in patches of 4.
const std::string kPicture = test::picture("rgb.jpeg");

// The lengths of the documents of each sequence.
std::vector<std::vector<int>> packed(const TokenFile& file, int64_t seq_len, const PackingOptions& options,
                                     PackedSequences::Losses& losses) {
  const PackedSequences sequences(file, options, seq_len);
  losses = sequences.losses();
  std::vector<std::vector<int>> lengths;
  for (int64_t i = 0; i < sequences.count(); ++i) {
    lengths.emplace_back();
    for (const Piece piece : sequences.pieces(i)) lengths.back().push_back(piece.length);
  }
  return lengths;
}

}  // namespace

TEST_CASE("sequences have places for tokens and for patches, and best_fit puts no more into one") {
  test::write_image_tokens(kPath, {{{kPicture}, 2}, {{kPicture}, 3}, {{}, 5}, {{kPicture}, 4}, {{}, 9}});
  const TokenFile file(kPath);
  PackedSequences::Losses losses;
  using Lengths = std::vector<std::vector<int>>;
  PackingOptions options{.packing = Packing::best_fit, .max_patches = 8};
  CHECK(packed(file, 20, options, losses) == Lengths{{6}, {7, 5}, {8, 9}});
  options.max_patches = 16;
  CHECK(packed(file, 20, options, losses) == Lengths{{6, 7, 5}, {8, 9}});
  CHECK(losses.images == 0);
  options.max_patches = 0;  // of the largest image, 16
  CHECK(packed(file, 20, options, losses) == Lengths{{6, 7, 5}, {8, 9}});
  CHECK(PackedSequences(file, options, 20).used_patches() == 24);
  CHECK(patches_of_sequence(options, file.image_input().rules) == 16);
}

TEST_CASE("an image is never cut: a document whose images do not fit is dropped and counted") {
  test::write_image_tokens(kPath, {{{kPicture}, 2}, {{kPicture, kPicture}, 2}, {{kPicture}, 9}, {{}, 9}});
  const TokenFile file(kPath);
  PackedSequences::Losses losses;
  using Lengths = std::vector<std::vector<int>>;
  for (const Packing packing : {Packing::none, Packing::best_fit}) {
    CHECK(packed(file, 8, {.packing = packing, .max_patches = 8}, losses).size() == 3);
    CHECK(losses.images == 1);  // of two images
    CHECK(losses.truncated == 2);
    CHECK(packed(file, 7, {.packing = packing, .truncation = Truncation::keep_end, .max_patches = 16},
                 losses) == (packing == Packing::none ? Lengths{{6}, {7}} : Lengths{{7}, {6}}));
    CHECK(losses.images == 2);  // keeping the end would cut an image
    CHECK(losses.truncated == 1);
  }
  CHECK(test::missing_from(
            test::error_of([&] { Data(file, {.seq_len = 20, .packing = {.packing = Packing::documents}}); }),
            {kPath, "has images", "data.packing = \"documents\" could cut",
             "data.packing = \"best_fit\" or \"none\""}) == "");
  test::write_image_tokens(kPath, {{{kPicture}, 2}});
  const TokenFile one(kPath);
  CHECK(test::missing_from(test::error_of([&] {
                             Data(one,
                                  {.seq_len = 20, .packing = {.packing = Packing::none, .max_patches = 7}});
                           }),
                           {"none of its 1 documents", "images that fit it and data.max_patches = 7"}) == "");
}

TEST_CASE("best_fit fills sequences by tokens and patches together") {
  std::vector<test::ImageDocument> documents;
  for (int i = 0; i < 200; ++i)
    documents.push_back(
        {std::vector<std::string>(static_cast<size_t>(i * 7 % 4), kPicture), 2 + i * 13 % 29});
  test::write_image_tokens(kPath, documents);
  const TokenFile file(kPath);
  const PackedSequences found(file, {.packing = Packing::best_fit, .max_patches = 48}, 64);
  int64_t tokens = 0, patches = 0;
  for (int64_t i = 0; i < found.count(); ++i) {
    int64_t length = 0, in_sequence = 0;
    for (const Piece piece : found.pieces(i)) {
      length += piece.length;
      for (const TokenImage& image : file.images()->images_in(piece.begin, piece.begin + piece.length))
        in_sequence += image.extent.patches;
    }
    CHECK(length <= 64);
    CHECK(in_sequence <= 48);
    tokens += length;
    patches += in_sequence;
  }
  CHECK(tokens == file.size());
  CHECK(tokens == found.used_tokens());
  CHECK(patches == found.used_patches());
  CHECK(10 * tokens > 9 * 64 * found.count());  // at least nine tenths full
}

TEST_CASE("an image in two documents is refused") {
  std::vector<test::ImageDocument> documents{{{kPicture}, 2}, {{}, 3}};
  test::write_image_tokens(kPath, documents);
  std::string bytes;
  {
    std::ifstream in(kPath, std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(in), {});
  }
  const int64_t start = 48 + 24;  // of the starts, behind 9 tokens
  bytes[static_cast<size_t>(start + 8)] = 2;
  bytes.resize(static_cast<size_t>(content_bytes(InputFile(kPath))));  // without checksums
  std::ofstream(kPath, std::ios::binary) << bytes;
  const TokenFile file(kPath);
  CHECK(test::error_of([&] { PackedSequences(file, {.packing = Packing::none}, 20); }) ==
        "packing_test.tok: is damaged: an image is in two documents");
}
