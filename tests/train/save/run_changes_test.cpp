#include "tests/test.h"
#include "train/config/fields.h"
#include "train/save/run_start.h"

using namespace flatshard;

namespace {

// A checkpoint of step 5, in the second epoch of its data.
TrainState state_of(const std::map<std::string, std::string>& changed = {}) {
  Config config;
  TrainState state{.step = 5,
                   .data_step = 6,
                   .data_epoch = 1,
                   .data_sequence = 16,
                   .data_tokens = 100,
                   .data_documents = 3,
                   .data_fingerprint = "200 bytes with SHA-256 aa",
                   .eval_fingerprint = "9 bytes",
                   .config = config_values(config)};
  state.log_history.push_back({.step = 5, .data_step = 6, .lr = 3e-4});
  for (const auto& [key, value] : changed) state.config[key] = value;
  return state;
}

std::string error_with(const std::map<std::string, std::string>& changed) {
  return test::error_of([&] { compare_runs(state_of(), state_of(changed)); });
}

}  // namespace

TEST_CASE(
    "a run that resumes may change learning rate, schedule, steps, decay, clipping, batch and evaluation") {
  for (const auto& [key, value] : std::map<std::string, std::string>{{"optimizer.lr", "0.5"},
                                                                     {"optimizer.lr_scaling", "\"sqrt\""},
                                                                     {"optimizer.base_batch_size", "8"},
                                                                     {"optimizer.weight_decay", "0.3"},
                                                                     {"optimizer.no_decay", "[]"},
                                                                     {"optimizer.grad_clip", "0.1"},
                                                                     {"schedule.kind", "\"cosine\""},
                                                                     {"schedule.warmup_steps", "3"},
                                                                     {"schedule.min_lr_factor", "0.2"},
                                                                     {"schedule.start_step", "5"},
                                                                     {"schedule.decay_ratio", "0.5"},
                                                                     {"train.steps", "70"},
                                                                     {"train.epochs", "2.5"},
                                                                     {"train.total_batch_size", "12"},
                                                                     {"train.eval_every", "7"},
                                                                     {"train.skip_nonfinite", "true"},
                                                                     {"data.max_samples", "9"},
                                                                     {"data.packing", "\"none\""}}) {
    CAPTURE(key);
    const TrainState saved = state_of(), now = state_of({{key, value}});
    const ResumeChanges found = compare_runs(saved, now);
    REQUIRE(found.changes.size() == 1);
    CHECK(describe(found.changes[0]) ==
          "changed since step 5: " + key + " " + saved.config.at(key) + " -> " + value);
  }
}

TEST_CASE(
    "a run that resumes with another model, seed, precision or kind of moments is refused with the reason") {
  CHECK(
      error_with({{"model.hidden", "32"}}) ==
      "model.hidden is 32, the checkpoint was made with 0, and its tensors are of that model: restore it, or "
      "start a new run");
  CHECK(error_with({{"optimizer.kind", "\"adamw8bit\""}})
            .starts_with(
                "optimizer.kind is \"adamw8bit\", the checkpoint was made with \"adamw\", whose moments it "
                "has in another form"));
  CHECK(error_with({{"optimizer.kind", "\"lion\""}}).find("in another form") != std::string::npos);
  CHECK(error_with({{"optimizer.kind", "\"paged_adamw32bit\""}}).empty());
  for (const auto& [key, value] : std::map<std::string, std::string>{{"optimizer.betas", "[0.9, 0.9]"},
                                                                     {"optimizer.eps", "0.1"},
                                                                     {"lora.rank", "4"},
                                                                     {"quant.base", "\"nf4\""},
                                                                     {"data.tokenizer", "\"other\""},
                                                                     {"precision.compute", "\"fp32\""},
                                                                     {"model.trainable", "[\"a\"]"},
                                                                     {"run.seed", "1"}}) {
    CAPTURE(key);
    const std::string error = error_with({{key, value}});
    CHECK(error.starts_with(str(key, " is ", value, ", the checkpoint was made with ")));
    CHECK(error.find("restore it, or start a new run") != error.npos);
  }
  const std::string both = error_with({{"model.hidden", "32"}, {"run.seed", "1"}});
  CHECK(both.find("model.hidden is 32") != both.npos);
  CHECK(both.find("; run.seed is 1") != both.npos);
}

TEST_CASE("every key has a rule for a run that resumes; an unknown key must not change") {
  Config config;
  for (const Field& field : fields(config)) {
    CAPTURE(field.key);
    CHECK(field.on_resume.has_value());
  }
  CHECK(error_with({{"parallel.unknown", "1"}})
            .starts_with("parallel.unknown is 1, the checkpoint was made with "));
}

TEST_CASE("what does not affect the steps is printed, but not kept as a change") {
  const ResumeChanges found = compare_runs(
      state_of(), state_of({{"parallel.strategy", "\"zero1\""}, {"run.dir", "\"x\""}, {"log.every", "3"}}));
  CHECK(found.changes.empty());
  REQUIRE(found.notes.size() == 1);
  CHECK(found.notes[0] == "changed since step 5: parallel.strategy \"full_shard\" -> \"zero1\"");
}

TEST_CASE("a change of the batch size continues at the next sequence, other tokens begin their epoch again") {
  const TrainState saved = state_of();
  const DataPosition same =
      data_position(saved, compare_runs(saved, state_of({{"train.total_batch_size", "12"}})));
  CHECK(same.step == 6);
  CHECK(same.epoch == 1);
  CHECK(same.sequence == 16);
  TrainState now = state_of({{"data.train", "\"b.tok\""}});
  CHECK(compare_runs(saved, now).changes.empty());  // the same tokens in another place
  now.data_fingerprint = "200 bytes with SHA-256 bb";
  const ResumeChanges found = compare_runs(saved, now);
  REQUIRE(found.changes.size() == 1);
  CHECK(describe(found.changes[0]) == "changed since step 5: data.train \"\" -> \"b.tok\"");
  REQUIRE(found.notes.size() == 1);
  CHECK(found.notes[0].ends_with("epoch 2 begins again"));
  const DataPosition other = data_position(saved, found);
  CHECK(other.epoch == 1);
  CHECK(other.sequence == 0);
  now.config = saved.config;
  CHECK(describe(compare_runs(saved, now).changes.at(0)) ==
        "changed since step 5: data.train \"200 bytes with SHA-256 aa\" -> \"200 bytes with SHA-256 bb\"");
}

TEST_CASE("other evaluation data are a change, with a note about the best checkpoint") {
  TrainState now = state_of();
  now.eval_fingerprint = "8 bytes";
  const ResumeChanges found = compare_runs(state_of(), now);
  REQUIRE(found.changes.size() == 1);
  CHECK(found.changes[0].key == "data.eval");
  REQUIRE(found.notes.size() == 1);
  CHECK(
      found.notes[0] ==
      "data.eval has other tokens: earlier evaluation losses, and the best checkpoint, are from other data");
}

TEST_CASE("a run that resumes on a processor that multiplies bf16 in another way says so") {
  TrainState saved = state_of(), now = state_of();
  now.bf16_products = "in f32, from widened operands";
  CHECK(compare_runs(saved, now).notes.empty());  // an earlier version did not record it
  saved.bf16_products = now.bf16_products;
  CHECK(compare_runs(saved, now).notes.empty());
  saved.bf16_products = "in bf16";
  const ResumeChanges found = compare_runs(parse_train_state(to_json(saved), "state"), now);
  CHECK(found.changes.empty());
  REQUIRE(found.notes.size() == 1);
  CHECK(test::missing_from(found.notes[0], {"in f32", "in bf16", "not bit for bit"}) == "");
}

TEST_CASE("a run resumes from a state without a position unless its data or its batch size change") {
  TrainState old = state_of();
  old.data_epoch = old.data_sequence = std::nullopt;
  CHECK(data_position(old, compare_runs(old, state_of())).step == 0);
  CHECK(test::error_of([&] {
          compare_runs(old, state_of({{"train.total_batch_size", "12"}}));
        }).starts_with("it does not record the position in its data"));
}

TEST_CASE("the header shows what changed, and the learning rate before and after") {
  const TrainState saved = state_of();
  const ResumeChanges found = compare_runs(saved, state_of({{"optimizer.lr", "0.5"}}));
  CHECK(describe_resumed("run/step-5", saved, found, 0.25, {}) ==
        "resumed   run/step-5, after step 5, written by 0 ranks\n"
        "          changed since step 5: optimizer.lr 0.0 -> 0.5\n"
        "          learning rate: 0.0003 in step 5, 0.25 in step 6\n");
  const ResumeChanges decay = compare_runs(saved, state_of({{"optimizer.weight_decay", "0.5"}}));
  CHECK(describe_resumed("run/step-5", saved, decay, 0.25, {}).find("learning rate") == std::string::npos);
}

TEST_CASE("the changes of a run are kept in the state and written as comments") {
  TrainState state = state_of();
  state.changes = {{.step = 3, .key = "optimizer.lr", .from = "0.1", .to = "0.2"},
                   {.step = 5, .key = "schedule.kind", .from = "\"linear\"", .to = "\"wsd\""}};
  const TrainState read = parse_train_state(to_json(state), "state");
  REQUIRE(read.changes.size() == 2);
  CHECK(history_comment(read.changes) ==
        "# changed since step 3: optimizer.lr 0.1 -> 0.2\n"
        "# changed since step 5: schedule.kind \"linear\" -> \"wsd\"\n");
  CHECK(read.data_epoch == 1);
  CHECK(read.data_sequence == 16);
  std::string text = to_json(state);
  text.replace(text.find("\"from\""), 6, "\"form\"");
  CHECK(test::error_of([&] { parse_train_state(text, "state"); }) == "state: changes[0].from is missing");
}

TEST_CASE("fewer samples of the same file are other data, told apart by their size") {
  const TrainState saved = state_of();
  TrainState now = state_of({{"data.max_samples", "2"}});
  now.data_tokens = 60;
  now.data_documents = 2;
  const ResumeChanges found = compare_runs(saved, now);
  CHECK(found.new_order);
  REQUIRE(found.changes.size() == 2);
  CHECK(describe(found.changes[0]) ==
        "changed since step 5: data.train \"100 tokens in 3 documents\" -> \"60 tokens in 2 documents\"");
  CHECK(describe(found.changes[1]) == "changed since step 5: data.max_samples 0 -> 2");
}

TEST_CASE("fingerprints in the form of earlier versions are those of now") {
  TrainState saved = state_of();
  saved.data_fingerprint = "1 bytes with SHA-256 aa; 2 bytes with SHA-256 bb; other";
  saved.eval_fingerprint = "2 bytes with SHA-256 bb";
  saved.base_fingerprint = "3 bytes with SHA-256 cc";
  saved.sources = {{.fingerprint = "1 bytes with SHA-256 aa"}, {.fingerprint = "other"}};
  update_fingerprints(saved, {{"1 bytes with SHA-256 aa", "1 bytes with block hash AA"},
                              {"2 bytes with SHA-256 bb", "2 bytes with block hash BB"},
                              {"3 bytes with SHA-256 cc", "3 bytes with SHA-256 cc"}});
  CHECK(*saved.data_fingerprint == "1 bytes with block hash AA; 2 bytes with block hash BB; other");
  CHECK(*saved.eval_fingerprint == "2 bytes with block hash BB");
  CHECK(*saved.base_fingerprint == "3 bytes with SHA-256 cc");
  CHECK(saved.sources[0].fingerprint == "1 bytes with block hash AA");
  CHECK(saved.sources[1].fingerprint == "other");
  TrainState none;
  update_fingerprints(none, {{"a", "b"}});
  CHECK(!none.data_fingerprint);
}
