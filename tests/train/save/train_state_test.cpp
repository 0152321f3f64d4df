#include "train/save/train_state.h"

#include "tests/test.h"
#include "train/save/run_changes.h"

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
