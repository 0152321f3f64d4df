#include "train/run/run_inputs.h"

#include <filesystem>
#include <fstream>

#include "tests/byte_tokenizer.h"
#include "tests/checkpoint_content.h"
#include "tests/test.h"
#include "tests/workshop.h"

using namespace flatshard;
namespace fs = std::filesystem;

namespace {

// Conversations of varied length, and the options of a run that is trained on them.
std::string write_chats(const test::Workshop& workshop) {
  test::write_byte_tokenizer(workshop.file("tokenizer"));
  std::ofstream out(workshop.file("chats.jsonl"));
  for (int i = 0; i < 40; ++i)
    out << "{\"messages\": [{\"role\": \"user\", \"content\": \"q" << i
        << "\"}, {\"role\": \"assistant\", \"content\": \""
        << std::string(static_cast<size_t>(1 + i % 7), 'a') << "\"}]}\n";
  return "--data.train=chats.jsonl --data.eval=chats.jsonl --data.tokenizer=tokenizer "
         "--data.chat_template=chatml "
         "--model.vocab=262 --data.packing=best_fit --data.seq_len=160 --train.eval_every=0 "
         "--train.eval_each_epoch=true --run.dir=run ";
}

std::vector<std::string> token_files(const test::Workshop& workshop) {
  std::vector<std::string> found;
  for (const auto& entry : fs::directory_iterator(workshop.file(".flatshard")))
    found.push_back(".flatshard/" + entry.path().filename().string());
  return found;
}

}  // namespace

TEST_CASE("a run on conversations makes their tokens once, and has the same bits on any number of ranks") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  const test::Workshop workshop("chat_run");
  const std::string options = write_chats(workshop);
  std::string first;
  for (const int ranks : {1, 2, 4}) {
    const test::Finished run = workshop.train(ranks, options);
    REQUIRE_MESSAGE(run.exit_code == 0, run.output);
    const size_t weights = run.output.find("\nweights ");
    REQUIRE(weights != std::string::npos);
    const std::string hash = run.output.substr(weights, 73);
    if (ranks == 1) {
      first = hash;
      CHECK(run.output.find(": made from chats.jsonl: 40 documents") != std::string::npos);
    } else {
      CHECK(run.output.find("made from") == std::string::npos);
    }
    CHECK(hash == first);
    CHECK(run.output.find("eval loss") != std::string::npos);
    CHECK(token_files(workshop).size() == 1);
  }
  CHECK(fs::exists(workshop.file("run/model/tokenizer.json")));
}

TEST_CASE("a run has the date of its beginning, which a resumed run keeps, on whatever day it resumes") {
  const test::Workshop workshop("dated_run");
  const std::string options = write_chats(workshop) + "--data.chat_template=dated.jinja ";
  std::ofstream(workshop.file("dated.jinja")) << "{{ strftime_now('%Y-%m-%d') }}{% for m in messages %}<|{{ "
                                                 "m.role }}|>{{ m.content }}</s>{% endfor %}";
  const auto run = [&](const std::string& more) {
    const test::Finished done = workshop.train(1, options + more);
    CHECK_MESSAGE(done.exit_code == 0, done.output);
    return done.output;
  };
  const auto date_in = [&](const std::string& folder) {
    const std::string config = test::read_file(workshop.file(folder + "/config.toml"));
    const size_t at = config.find("\ndate = \"");
    return at == config.npos ? "" : config.substr(at + 9, 10);
  };
  const std::string first =
      run("--data.date=2024-02-29 --run.dir=a --train.steps=2 --checkpoint.save_every=2 ");
  CHECK(date_in("a") == "2024-02-29");
  const std::string resumed = run("--resume a/step-2 --run.dir=b --train.steps=4 ");
  CHECK(date_in("b") == "2024-02-29");
  CHECK(resumed.find("2024-02-29") != std::string::npos);
  CHECK(resumed.find(": data.") == std::string::npos);  // among what changed
  CHECK(resumed.find("made from") == std::string::npos);
  CHECK(token_files(workshop).size() == 1);
  run("--run.dir=c --train.steps=2 ");
  const std::string today = date_in("c");
  CHECK(today.size() == 10);
  CHECK(today > "2024-02-29");
  CHECK(token_files(workshop).size() == 2);
  const test::Finished wrong = workshop.train(1, options + "--data.date=29.2.2024 ");
  CHECK(wrong.exit_code == 1);
  CHECK(test::missing_from(wrong.output, {"data.date", "29.2.2024", "YYYY-MM-DD"}) == "");
}

TEST_CASE("a run on a template that prints no date records none") {
  const test::Workshop workshop("undated_run");
  const test::Finished run = workshop.train(1, write_chats(workshop) + "--train.steps=1");
  REQUIRE_MESSAGE(run.exit_code == 0, run.output);
  CHECK(test::read_file(workshop.file("run/config.toml")).find("\ndate = \"\"") != std::string::npos);
}

TEST_CASE("tokens of another tokenizer, or of text that has changed, are refused with the reason") {
  const test::Workshop workshop("stale_tokens");
  const std::string options = write_chats(workshop);
  REQUIRE(workshop.train(1, options).exit_code == 0);
  const std::string tokens = token_files(workshop).front();
  fs::copy_file(workshop.file(tokens), workshop.file("old.tok"));
  const std::string with_old = options + "--data.train=old.tok ";
  CHECK(workshop.train(1, with_old).exit_code == 0);
  test::write_byte_tokenizer(workshop.file("tokenizer"), true);
  const test::Finished other = workshop.train(1, with_old);
  CHECK(other.exit_code == 1);
  CHECK_MESSAGE(other.output.find("old.tok was made with the tokenizer ") != std::string::npos, other.output);
  CHECK(other.output.find(": make it again with prepare") != std::string::npos);
  test::write_byte_tokenizer(workshop.file("tokenizer"));
  std::ofstream(workshop.file("chats.jsonl"), std::ios::app) << "{\"text\": \"more\"}\n";
  const test::Finished changed = workshop.train(1, with_old);
  CHECK(changed.exit_code == 1);
  CHECK_MESSAGE(changed.output.find("chats.jsonl when that had ") != std::string::npos, changed.output);
}

TEST_CASE("a broken line of conversations ends a run before it starts, with file and line") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  const test::Workshop workshop("broken_chats");
  const std::string options = write_chats(workshop);
  std::ofstream(workshop.file("chats.jsonl"), std::ios::app) << "{\"messages\": [\n";
  for (const int ranks : {1, 2}) {
    const test::Finished run = workshop.train(ranks, options);
    CHECK(run.exit_code == 1);
    CHECK_MESSAGE(run.output.find("chats.jsonl:41: ") != std::string::npos, run.output);
    CHECK(!fs::exists(workshop.file("run")));
  }
}
