#include "train/save/early_stop.h"

#include <cmath>

#include "tests/test.h"

using namespace flatshard;

namespace {

TrainState on_data(const char* fingerprint) { return {.eval_fingerprint = fingerprint}; }

// A state as a checkpoint file keeps it.
TrainState stored(const EarlyStop& counted) {
  TrainState state = on_data("a");
  counted.store(state);
  return parse_train_state(to_json(state), "state");
}

}  // namespace

TEST_CASE("only a lower loss begins the count again") {
  EarlyStop counted(3);
  for (const double loss : {2.0, 2.0, 2.5}) counted.note(1, loss);
  CHECK(!counted.is_due());
  counted.note(7, 1.5);
  counted.note(8, NAN);
  counted.note(9, INFINITY);
  CHECK(!counted.is_due());
  counted.note(10, 1.5);
  CHECK(counted.is_due());
  CHECK(counted.reason() ==
        "none of the last 3 evaluations has a lower loss than that of step 7 (1.5000); "
        "train.stop_after_no_improvement = 3");
}

TEST_CASE("a run that never had a finite evaluation loss stops early too") {
  EarlyStop counted(2);
  counted.note(1, NAN);
  counted.note(2, NAN);
  CHECK(counted.is_due());
  CHECK(counted.reason() ==
        "none of the last 2 evaluations has a finite loss; train.stop_after_no_improvement = 2");
}

TEST_CASE("a checkpoint keeps the count, unless other data are evaluated, and a limit of 0 never stops") {
  EarlyStop counted(2);
  for (const double loss : {2.0, 3.0, 4.0}) counted.note(1, loss);
  const TrainState saved = stored(counted);
  EarlyStop same(2), other(2), patient(3), never(0);
  same.restore(saved, on_data("a"));
  other.restore(saved, on_data("b"));
  patient.restore(saved, on_data("a"));
  never.restore(saved, on_data("a"));
  CHECK(same.is_due());
  CHECK(!other.is_due());
  CHECK(!patient.is_due());
  patient.note(4, 2.0);
  CHECK(patient.is_due());
  CHECK(!never.is_due());
}
