#include "train/save/train_state.h"

#include "tests/test.h"

using namespace flatshard;

namespace {

TrainState state_of(const std::string& data, const std::string& eval) {
  TrainState state{.data_tokens = 100, .data_documents = 3};
  if (!data.empty()) state.data_fingerprint = data;
  if (!eval.empty()) state.eval_fingerprint = eval;
  return state;
}

}  // namespace

TEST_CASE("a run does not resume with other tokens, even if there are as many") {
  const TrainState saved = state_of("200 bytes with SHA-256 aa", "");
  CHECK(check_continues(saved, saved).empty());
  CHECK(test::error_of([&] { check_continues(saved, state_of("200 bytes with SHA-256 bb", "")); }) ==
        "data.train has 200 bytes with SHA-256 bb, the checkpoint was made on 200 bytes with SHA-256 aa: use "
        "the tokens that the run began with");
}

TEST_CASE("resuming with other evaluation data is allowed and reported") {
  const auto changes = check_continues(state_of("a", "9 bytes"), state_of("a", "8 bytes"));
  REQUIRE(changes.size() == 1);
  CHECK(changes[0] ==
        "data.eval has 8 bytes, had 9 bytes: earlier evaluation losses, and the best checkpoint, are from "
        "other data");
}

TEST_CASE("a state without fingerprints is read and resumed") {
  const TrainState old = state_of("", "");
  const std::string text = to_json(old);
  CHECK(text.find("fingerprint") == text.npos);
  CHECK(!parse_train_state(text, "state").data_fingerprint);
  CHECK(check_continues(old, state_of("a", "b")).empty());
  CHECK(parse_train_state(to_json(state_of("a", "b")), "state").data_fingerprint == "a");
}
