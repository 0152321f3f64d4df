#include "text/data/data.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>

#include "tests/test.h"

using namespace flatshard;

namespace {

constexpr const char* kPath = "data_test.tok";

// A token file that is removed after the test: documents of the given lengths, tokens 0, 1, 2, ... modulo the
// vocabulary.
struct TempTokens {
  explicit TempTokens(const std::vector<int>& lengths, int64_t vocab = 1000) {
    TokenWriter writer(kPath, vocab);
    int32_t next = 0;
    for (const int length : lengths) {
      std::vector<int32_t> document;
      for (int i = 0; i < length; ++i) document.push_back(next++ % static_cast<int32_t>(vocab));
      writer.add_document(document);
    }
    writer.finish();
  }
  ~TempTokens() { std::filesystem::remove(kPath); }
};

struct Space {
  explicit Space(int64_t n) : tokens(n), positions(n), targets(n), boundaries(n + 1) {
    batch = {tensor_of(tokens.data(), {n}), tensor_of(positions.data(), {n}), tensor_of(targets.data(), {n}),
             tensor_of(boundaries.data(), {n + 1})};
  }
  std::vector<int32_t> tokens, positions, targets, boundaries;
  Batch batch;
};

std::vector<int32_t> elements(const Tensor& t) { return {t.as<int32_t>(), t.as<int32_t>() + t.size()}; }

using Ints = std::vector<int32_t>;

Ints tokens_of(const TokenFile& file, int64_t begin, size_t count) {
  Ints tokens(count);
  file.read(begin, tokens);
  return tokens;
}

void damage(int64_t position, char byte) {
  std::fstream file(kPath, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(position);
  file.put(byte);
}

}  // namespace

TEST_CASE("a permutation is a bijection, differs by key, and does not keep the order") {
  for (const int64_t size : {1, 2, 3, 10, 1000}) {
    std::set<int64_t> seen;
    for (int64_t i = 0; i < size; ++i) seen.insert(Permutation(size, 7)[i]);
    CHECK(static_cast<int64_t>(seen.size()) == size);
    CHECK(*seen.begin() == 0);
    CHECK(*seen.rbegin() == size - 1);
  }
  int same_as_other_key = 0, fixed = 0;
  for (int64_t i = 0; i < 1000; ++i) {
    same_as_other_key += Permutation(1000, 7)[i] == Permutation(1000, 8)[i];
    fixed += Permutation(1000, 7)[i] == i;
  }
  CHECK(same_as_other_key < 10);
  CHECK(fixed < 10);
}

TEST_CASE("a token file returns the tokens written, in 16 or 32 bits") {
  for (const int64_t vocab : {256, 65536, 65537, 100000}) {
    TokenWriter writer(kPath, vocab);
    const Ints first{0, 1, static_cast<int32_t>(vocab) - 1}, second{5};
    writer.add_document(first);
    writer.add_document({});
    writer.add_document(second);
    writer.finish();
    const TokenFile file(kPath);
    CHECK(file.size() == 4);
    CHECK(file.document_count() == 3);
    CHECK(file.vocab() == vocab);
    CHECK(tokens_of(file, 0, 4) == Ints{0, 1, static_cast<int32_t>(vocab) - 1, 5});
    CHECK(tokens_of(file, 2, 1) == Ints{static_cast<int32_t>(vocab) - 1});
    CHECK(content_bytes(InputFile(kPath)) == (vocab <= 65536 ? 48 + 8 : 48 + 16) + 4 * 8);
  }
  std::filesystem::remove(kPath);
}

TEST_CASE("an unfinished token file leaves nothing behind") {
  {
    TokenWriter writer(kPath, 10);
    writer.add_document(Ints{1, 2});
    CHECK(test::error_of([&] {
            writer.add_document(Ints{3, 10});
          }) == "data_test.tok: token 10 at 3 is outside the vocabulary of 10");
  }
  CHECK_FALSE(std::filesystem::exists(kPath));
  for (const auto& entry : std::filesystem::directory_iterator("."))
    CHECK_FALSE(entry.path().filename().string().starts_with(kPath));
}

TEST_CASE("a damaged token file is refused with the reason") {
  const auto error = [] { return test::error_of([] { TokenFile file(kPath); }); };
  CHECK(error() == "data_test.tok: cannot open: No such file or directory");
  const TempTokens tokens({10, 10}, 50);
  const int64_t bytes = content_bytes(InputFile(kPath));
  std::filesystem::resize_file(kPath, static_cast<size_t>(bytes - 1));
  CHECK(error() ==
        str("data_test.tok: has ", bytes - 1, " bytes, must have ", bytes, ": it is cut off or damaged"));
  std::filesystem::resize_file(kPath, 0);
  CHECK(error() == "data_test.tok: is not a token file: make one with prepare");
}

TEST_CASE("a token outside the vocabulary and damaged starts are named") {
  const TempTokens tokens({10, 10}, 50);
  damage(48 + 3 * 2, 77);
  const std::string found = test::error_of([] { TokenFile file(kPath); });
  CHECK(test::missing_from(found, {kPath, "is damaged between byte 0 and byte ", "make it again"}) == "");
  std::filesystem::resize_file(kPath, static_cast<uintmax_t>(content_bytes(InputFile(kPath))));
  {
    const TokenFile file(kPath);
    CHECK(tokens_of(file, 1, 2) == Ints{1, 2});
    CHECK(test::error_of([&] { tokens_of(file, 1, 5); }) ==
          "data_test.tok: token 77 at 3 is outside the vocabulary of 50");
  }
  damage(48 + 40 + 8, 99);
  CHECK(test::error_of([] { TokenFile file(kPath); }) ==
        "data_test.tok: is damaged: the document starts are not ascending from 0 to 20");
  damage(16 + 7, 0x7f);
  CHECK(test::error_of([] { TokenFile file(kPath); }).find("but the file has only") != std::string::npos);
  damage(12 + 3, static_cast<char>(0xff));  // ids above it would be negative
  CHECK(test::error_of([] { TokenFile file(kPath); }) ==
        "data_test.tok: the vocabulary is 4278190130 tokens, must be from 1 to 2147483647");
  damage(0, 'X');
  CHECK(test::error_of([] { TokenFile file(kPath); }) ==
        "data_test.tok: is not a token file: make one with prepare");
}

TEST_CASE("a token file whose size changes while it is open is an error with both sizes") {
  const TempTokens tokens({9});
  const TokenFile file(kPath);
  const Data data(file, {.seq_len = 4, .shuffle = false});
  const auto error = [&](uintmax_t bytes) {
    std::filesystem::resize_file(kPath, bytes);
    Space space(4);
    return test::error_of([&] { data.read(0, 0, space.batch); });
  };
  const uintmax_t bytes = std::filesystem::file_size(kPath);
  CHECK(error(bytes) == "");
  for (const uintmax_t other : {uintmax_t{0}, bytes - 1, bytes + 8})
    CHECK(error(other) == str("data_test.tok: has ", other, " bytes, had ", bytes,
                              " when it was opened; a file must not change while it is read"));
}

TEST_CASE("the document starts of any range are found, however many there are") {
  std::vector<int> lengths;
  for (int i = 0; i < 3000; ++i) lengths.push_back(i % 700 < 600 ? i % 3 : 0);  // many share a start
  const TempTokens tokens(lengths);
  const TokenFile file(kPath);
  std::vector<uint64_t> starts{0};
  for (const int length : lengths) starts.push_back(starts.back() + static_cast<uint64_t>(length));
  CHECK(file.starts_in(0, file.size() + 1) == starts);
  for (int64_t begin = 0; begin <= file.size(); begin += 11)
    for (const int64_t length : {1, 40, 900}) {
      std::vector<uint64_t> expected;
      for (const uint64_t start : starts)
        if (static_cast<int64_t>(start) >= begin && static_cast<int64_t>(start) < begin + length)
          expected.push_back(start);
      REQUIRE(file.starts_in(begin, begin + length) == expected);
    }
}

TEST_CASE("packed sequences predict the next token across their ends") {
  const TempTokens tokens({9});
  const TokenFile file(kPath);
  const Data data(file, {.seq_len = 4, .lane_sequences = 2, .total_sequences = 2, .shuffle = false});
  CHECK(data.sequence_count() == 2);
  Space space(8);
  const Batch batch = data.read(0, 0, space.batch);
  CHECK(elements(batch.tokens) == Ints{0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(elements(batch.targets) == Ints{1, 2, 3, 4, 5, 6, 7, 8});
  CHECK(elements(batch.positions) == Ints{0, 1, 2, 3, 0, 1, 2, 3});
  CHECK(elements(batch.boundaries) == Ints{0, 4, 8});
  CHECK(data.target_count(0) == 8);
}

TEST_CASE("masked documents neither predict nor see each other") {
  const TempTokens tokens({3, 0, 2, 8});
  const TokenFile file(kPath);
  const Data data(file, {.seq_len = 4,
                         .lane_sequences = 3,
                         .total_sequences = 3,
                         .packing = {.packing = Packing::documents},
                         .shuffle = false});
  Space space(12);
  const Batch batch = data.read(0, 0, space.batch);
  CHECK(elements(batch.targets) == Ints{1, 2, -100, 4, -100, 6, 7, 8, 9, 10, 11, 12});
  CHECK(elements(batch.positions) == Ints{0, 1, 2, 0, 0, 0, 1, 2, 0, 1, 2, 3});
  CHECK(elements(batch.boundaries) == Ints{0, 3, 4, 5, 8, 12});
  CHECK(data.target_count(0) == 10);
  CHECK(data.token_count(0) == 12);
}

TEST_CASE("an epoch visits every sequence once, and its last step is filled with empty ones") {
  const TempTokens tokens({4 * 7 + 1});
  const TokenFile file(kPath);
  const Data data(file, {.seq_len = 4, .lane_sequences = 1, .total_sequences = 4, .seed = 3});
  CHECK(data.steps_per_epoch() == 2);
  for (const int64_t epoch : {0, 1}) {
    std::multiset<int32_t> firsts;
    int64_t counted = 0;
    for (int64_t step = 2 * epoch; step < 2 * epoch + 2; ++step) {
      int64_t valid = 0;
      for (int64_t lane = 0; lane < 4; ++lane) {
        Space space(4);
        data.read(step, lane, space.batch);
        for (const int32_t target : space.targets) valid += target >= 0;
        if (space.targets[0] >= 0) firsts.insert(space.tokens[0]);
      }
      CHECK(valid == data.target_count(step));
      counted += valid;
    }
    CHECK(firsts == std::multiset<int32_t>{0, 4, 8, 12, 16, 20, 24});
    CHECK(counted == 28);
  }
}

TEST_CASE("the sequences of a step do not depend on its division into lanes") {
  const TempTokens tokens({4 * 40 + 1});
  const TokenFile file(kPath);
  Ints whole, cut;
  for (const auto& [lanes, sequences, out] : {std::tuple{1, 8, &whole}, {8, 1, &cut}})
    for (int64_t lane = 0; lane < lanes; ++lane) {
      const Data data(file, {.seq_len = 4, .lane_sequences = sequences, .total_sequences = 8, .seed = 5});
      Space space(4 * sequences);
      data.read(1, lane, space.batch);
      out->insert(out->end(), space.tokens.begin(), space.tokens.end());
    }
  CHECK(whole == cut);
}

TEST_CASE("a file too short for one sequence is an error with the numbers") {
  const TempTokens tokens({4});
  const TokenFile file(kPath);
  CHECK(test::error_of([&] { Data(file, {.seq_len = 4}); }) ==
        "data_test.tok: has 4 tokens, must have at least data.seq_len + 1 = 5");
}

TEST_CASE("a change of the batch size in an epoch neither skips nor repeats a sequence") {
  const TempTokens tokens({400});  // 99 sequences of 4
  const TokenFile file(kPath);
  const auto batches_of = [&](int64_t total) {
    return Data(file, {.seq_len = 4, .lane_sequences = 1, .total_sequences = total, .seed = 3});
  };
  // The first tokens of the sequences of a step, which are different for all.
  const auto add_step = [&](const Data& data, int64_t step, std::vector<int32_t>& seen) {
    Space space(4);
    for (int64_t lane = 0; lane < data.lanes_per_step(); ++lane)
      if (const Batch batch = data.read(step, lane, space.batch); elements(batch.targets)[0] >= 0)
        seen.push_back(elements(batch.tokens)[0]);
  };
  std::vector<int32_t> whole, changed;
  const Data eights = batches_of(8);
  for (int64_t step = 0; step < 2 * eights.steps_per_epoch(); ++step) add_step(eights, step, whole);
  REQUIRE(whole.size() == 2 * 99);
  Data fives = batches_of(5), twelves = batches_of(12);
  for (int64_t step = 0; step < 7; ++step) add_step(eights, step, changed);
  fives.start_at(eights.position(7));
  for (int64_t step = 7; step < 20; ++step) add_step(fives, step, changed);  // into the second epoch
  CHECK(fives.position(20).epoch == 1);
  twelves.start_at(fives.position(20));
  int64_t step = 20;
  for (; twelves.position(step).epoch == 1; ++step) add_step(twelves, step, changed);
  CHECK(changed == whole);
  CHECK(twelves.ends_epoch(step));
  CHECK(twelves.steps_until(2) == static_cast<double>(step));
  CHECK(twelves.steps_until(3) == static_cast<double>(step + 9));
  CHECK(twelves.steps_until(1) == 20);
}

TEST_CASE("the steps of some epochs do not depend on where a run resumed") {
  const TempTokens tokens({400});
  const TokenFile file(kPath);
  for (const double epochs : {0.3, 1.0, 1.1, 2.5, 3.0}) {
    const Data whole(file, {.seq_len = 4, .lane_sequences = 1, .total_sequences = 8});
    for (int64_t step = 0; step < 13; ++step) {
      Data resumed = whole;
      resumed.start_at(whole.position(step));
      CHECK(resumed.steps_until(epochs) == std::max(static_cast<double>(step), whole.steps_until(epochs)));
      CHECK(resumed.position(40).sequence == whole.position(40).sequence);
    }
  }
}

namespace {

// Two token files of windows of 4, with tokens below 100, and from 100 on.
struct TwoFiles {
  TwoFiles(int first, int second) : tokens({4 * first + 1}, 1000) {
    TokenWriter writer(kOther, 1000);
    std::vector<int32_t> document;
    for (int i = 0; i < 4 * second + 1; ++i) document.push_back(500 + i);
    writer.add_document(document);
    writer.finish();
    files = {&a.emplace(kPath), &b.emplace(kOther)};
  }
  ~TwoFiles() { std::filesystem::remove(kOther); }

  static constexpr const char* kOther = "data_test_other.tok";
  TempTokens tokens;
  std::optional<TokenFile> a, b;
  std::vector<const TokenFile*> files;
};

// The first tokens of the sequences of some steps, which tell them apart.
Ints firsts_of(const Data& data, int64_t begin, int64_t end) {
  Ints firsts;
  Space space(4);
  for (int64_t step = begin; step < end; ++step)
    for (int64_t lane = 0; lane < data.lanes_per_step(); ++lane)
      if (const Batch batch = data.read(step, lane, space.batch); elements(batch.targets)[0] >= 0)
        firsts.push_back(elements(batch.tokens)[0]);
  return firsts;
}

}  // namespace

TEST_CASE("without weights an epoch of several files has every sequence once, evenly spread") {
  const TwoFiles two(30, 10);
  const Data data(two.files, {}, {.seq_len = 4, .total_sequences = 8, .seed = 3});
  CHECK(data.sequence_count() == 40);
  CHECK(data.steps_per_epoch() == 5);
  for (const int64_t epoch : {0, 1}) {
    const Ints firsts = firsts_of(data, 5 * epoch, 5 * epoch + 5);
    CHECK(std::set<int32_t>(firsts.begin(), firsts.end()).size() == 40);
    for (size_t i = 0; i < 40; i += 4)
      CHECK(std::count_if(&firsts[i], &firsts[i] + 4, [](int32_t t) { return t >= 500; }) == 1);
  }
}

TEST_CASE("with weights each file has its share, and is visited in shuffled epochs of its own") {
  const TwoFiles two(30, 10);
  const Data data(two.files, std::vector{0.5, 0.5}, {.seq_len = 4, .total_sequences = 8, .seed = 3});
  const Ints firsts = firsts_of(data, 0, 15);  // 120 sequences, three epochs
  std::vector<Ints> of_file(2);
  for (const int32_t token : firsts) of_file[token >= 500].push_back(token);
  REQUIRE(of_file[0].size() == 60);
  REQUIRE(of_file[1].size() == 60);
  const auto distinct = [](const Ints& all, size_t begin, size_t count) {
    return std::set<int32_t>(&all[begin], &all[begin] + count).size();
  };
  for (size_t epoch = 0; epoch < 2; ++epoch) CHECK(distinct(of_file[0], 30 * epoch, 30) == 30);
  for (size_t epoch = 0; epoch < 6; ++epoch) CHECK(distinct(of_file[1], 10 * epoch, 10) == 10);
  CHECK(Ints(&of_file[1][0], &of_file[1][10]) != Ints(&of_file[1][10], &of_file[1][20]));
  CHECK(data.source_positions(15) == std::vector<SourcePosition>{{2, 0}, {6, 0}});
  CHECK(data.source_positions(6) == std::vector<SourcePosition>{{0, 24}, {2, 4}});
  for (int64_t step = 0; step < 15; ++step) {
    const std::vector<int64_t> counts = data.target_counts(step);
    CHECK(counts[0] + counts[1] == data.target_count(step));
    CHECK(counts[0] == 16);
    CHECK(data.source_of(step, 0) != data.source_of(step, 1));
  }
}

TEST_CASE("a list of one file has the sequences of that file") {
  const TempTokens tokens({4 * 37 + 1});
  const TokenFile file(kPath);
  const DataOptions options{.seq_len = 4, .total_sequences = 8, .seed = 3};
  const Data one(file, options), list(std::array{&file}, std::vector{0.3}, options);
  CHECK(firsts_of(one, 0, 12) == firsts_of(list, 0, 12));
}

TEST_CASE("a run with other weights continues every file at its next sequence") {
  const TwoFiles two(30, 10);
  const DataOptions options{.seq_len = 4, .total_sequences = 8, .seed = 3};
  const Data before(two.files, std::vector{0.5, 0.5}, options);
  Data after(two.files, std::vector{0.75, 0.25}, options), same(before);
  after.start_at(before.position(3), before.source_positions(3));
  same.start_at(before.position(3), before.source_positions(3));
  CHECK(firsts_of(same, 3, 20) == firsts_of(before, 3, 20));
  CHECK(after.source_positions(3) == before.source_positions(3));
  Ints firsts = firsts_of(before, 0, 3);
  const Ints later = firsts_of(after, 3, 6);
  CHECK(std::count_if(later.begin(), later.end(), [](int32_t t) { return t >= 500; }) == 6);
  firsts.insert(firsts.end(), later.begin(), later.end());
  std::vector<Ints> of_file(2);
  for (const int32_t token : firsts) of_file[token >= 500].push_back(token);
  CHECK(of_file[0].size() == 30);  // 12 and 18
  CHECK(std::set<int32_t>(of_file[0].begin(), of_file[0].end()).size() == 30);
  CHECK(std::set<int32_t>(of_file[1].begin(), of_file[1].begin() + 10).size() == 10);
  // The same continues where a later resume finds it.
  Data again(two.files, std::vector{0.75, 0.25}, options);
  again.start_at(after.position(7), after.source_positions(7));
  CHECK(firsts_of(again, 7, 20) == firsts_of(after, 7, 20));
}

TEST_CASE("a position that no run reaches is refused") {
  const TwoFiles two(30, 10);
  Data data(two.files, {}, {.seq_len = 4, .total_sequences = 8});
  CHECK(
      test::error_of([&] { data.start_at({.epoch = int64_t{1} << 60}); }).ends_with("which no run reaches"));
  CHECK(test::error_of([&] {
          data.start_at({}, std::vector<SourcePosition>{{0, 30}, {0, 0}});
        }) == "data_test.tok: has 30 sequences, but the run is to continue at sequence 30");
}
