#include "train/save/train_state.h"

#include "tests/test.h"
#include "train/save/run_start.h"

using namespace flatshard;

TEST_CASE("a state without fingerprints, position and changes is read and resumed") {
  TrainState old{.data_tokens = 100, .data_documents = 3};
  const std::string text = to_json(old);
  for (const char* member : {"fingerprint", "data_epoch", "changes"}) CHECK(text.find(member) == text.npos);
  CHECK(!parse_train_state(text, "state").data_fingerprint);
  TrainState now = old;
  now.data_fingerprint = "a";
  now.eval_fingerprint = "b";
  CHECK(compare_runs(old, now).changes.empty());
  CHECK(parse_train_state(to_json(now), "state").data_fingerprint == "a");
}

TEST_CASE("a run does not resume on adapters of another base") {
  TrainState saved{.base_fingerprint = "aa"}, now{.base_fingerprint = "bb"};
  CHECK(
      test::error_of([&] { compare_runs(saved, now); }) ==
      "model.init_from has weights of bb, the adapters were trained on aa: use the model that the run began "
      "with");
}

TEST_CASE("positions of several files are read back, and what cannot be one is refused") {
  TrainState state{.data_tokens = 1, .data_documents = 1};
  CHECK(to_json(state).find("sources") == std::string::npos);
  state.sources = {{"aa", {.epoch = 2, .sequence = 7}}, {"bb", {.epoch = 0, .sequence = 1}}};
  const std::string text = to_json(state);
  const TrainState read = parse_train_state(text, "state");
  REQUIRE(read.sources.size() == 2);
  CHECK(read.sources[0].fingerprint == "aa");
  CHECK(read.sources[0].position == SourcePosition{.epoch = 2, .sequence = 7});
  const auto error = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    changed.replace(changed.find(from), from.size(), to);
    return test::error_of([&] { parse_train_state(changed, "state"); });
  };
  CHECK(error("\"sequence\": 7", "\"sequence\": -7") ==
        "state: sources[0].sequence is -7, must be a whole number from 0 to 2^63 - 1");
  CHECK(error("\"epoch\": 2,", "") == "state: sources[0].epoch is missing");
  CHECK(error("\"epoch\": 0,", "\"epoch\": 0, \"more\": 0,") == "state: sources[1]: unknown member more");
  CHECK(error("\"aa\"", "1") == "state: sources[0].fingerprint is 1, must be a string");
}

TEST_CASE("files of data continue where the checkpoint has them, known by their content") {
  TrainState saved{.data_epoch = 1, .data_sequence = 5, .data_fingerprint = "aa; bb"}, now = saved;
  saved.sources = {{"aa", {.epoch = 2, .sequence = 7}}, {"bb", {.epoch = 0, .sequence = 3}}};
  now.sources = {{"aa", {}}, {"bb", {}}};
  using Positions = std::vector<SourcePosition>;
  const auto positions = [&] { return source_positions(saved, now, compare_runs(saved, now)); };
  CHECK(positions() == Positions{{2, 7}, {0, 3}});
  now.data_fingerprint = "bb; cc; aa";
  now.sources = {{"bb", {}}, {"cc", {}}, {"aa", {}}};
  CHECK(positions() == Positions{{0, 3}, {0, 0}, {2, 7}});
  now.config["data.seq_len"] = "99";  // other sequences: the epochs of the files begin again
  CHECK(positions() == Positions{{0, 0}, {0, 0}, {2, 0}});
  now.config.clear();
  now.sources = {{"aa", {}}, {"dd", {}}};
  now.data_fingerprint = "aa; dd";  // new content in the place of bb
  CHECK(positions() == Positions{{2, 7}, {0, 0}});
  saved.sources.clear();
  saved.data_fingerprint = "aa";  // a run on one file goes on with two
  CHECK(positions() == Positions{{1, 5}, {0, 0}});
  now.sources.clear();
  CHECK(positions().empty());
}
