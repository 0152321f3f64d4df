#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/byte_tokenizer.h"
#include "tests/test.h"
#include "text/data/dataset.h"
#include "tools/programs.h"

using namespace flatshard;
namespace fs = std::filesystem;

namespace {

constexpr const char* kTokenizer = "record_documents_tokenizer";
constexpr const char *kTokens = "record_documents.tok", *kEval = "record_documents_eval.tok";
using Texts = std::vector<std::string>;
using Floats = std::vector<float>;

EncoderOptions encoder_options(RecordKind records) {
  test::write_byte_tokenizer(kTokenizer);
  return {.tokenizer = kTokenizer, .chat_template = "chatml", .records = records};
}

void write(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

// The documents of a token file as text, with [ ] around trained tokens.
Texts documents_in(const std::string& path) {
  const TokenFile file(path);
  const SampleEncoder encoder(encoder_options(RecordKind::samples));
  Texts documents;
  file.each_document([&](int64_t begin, int64_t length) {
    std::vector<int32_t> tokens(static_cast<size_t>(length));
    std::vector<uint8_t> trained(tokens.size());
    file.read(begin, tokens);
    file.read_mask(begin, trained);
    std::string text;
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (trained[i] && (i == 0 || !trained[i - 1])) text += '[';
      text += encoder.decode({tokens[i]});
      if (trained[i] && (i + 1 == tokens.size() || !trained[i + 1])) text += ']';
    }
    documents.push_back(text);
  });
  return documents;
}

struct Written {
  DatasetCounts counts;
  Texts train{}, eval{};
};

Written written(const std::string& lines, DatasetOptions options, double weight = 1) {
  write("records.jsonl", lines);
  const SampleEncoder encoder(options.encoder);
  TokenWriter train(kTokens, encoder.vocab()), eval(kEval, encoder.vocab());
  TokenWriter* const eval_writer = options.eval_share > 0 ? &eval : nullptr;
  Written found{.counts = write_dataset({{"records.jsonl", weight}}, options, encoder, train, eval_writer)};
  train.finish();
  eval.finish();
  found.train = documents_in(kTokens);
  found.eval = documents_in(kEval);
  return found;
}

std::string error(const std::string& lines, RecordKind records) {
  return test::error_of([&] { written(lines, {.encoder = encoder_options(records)}); });
}

std::string pair(int i) { return str(R"({"prompt":"p)", i, R"(","chosen":"a","rejected":"b"})", '\n'); }

std::string rewarded(const std::string& completion, int reward, const std::string& group) {
  return str(R"({"prompt":"p","completion":")", completion, R"(","reward":)", reward, R"(,"group":")", group,
             "\"}\n");
}

Floats values_of(const TokenColumn& column) {
  Floats values(static_cast<size_t>(TokenFile(kTokens).size()));
  column.read(0, values);
  return values;
}

struct Run {
  int status;
  std::string out, err;
};

Run prepare(Texts arguments) {
  for (const char* option : {"--tokenizer", kTokenizer, "--chat-template", "chatml", "--out", kTokens})
    arguments.emplace_back(option);
  std::istringstream in;
  std::ostringstream out, err;
  const int status = run_prepare(arguments, {in, out, err});
  return {status, out.str(), err.str()};
}

}  // namespace

TEST_CASE("a pair becomes two documents, chosen and rejected, and counts as one sample") {
  const DatasetOptions options{.encoder = encoder_options(RecordKind::pairs)};
  const Written two = written(pair(1) + pair(2), options);
  CHECK(two.train == Texts{"p1[a</s>]", "p1[b</s>]", "p2[a</s>]", "p2[b</s>]"});
  CHECK(two.counts.samples == 2);
  CHECK(written(pair(1) + pair(2), options, 1.5).train ==
        Texts{"p1[a</s>]", "p1[b</s>]", "p2[a</s>]", "p2[b</s>]", "p2[a</s>]", "p2[b</s>]"});
  DatasetOptions split = options;
  split.eval_share = 0.5;
  const Written half = written(pair(1) + pair(2), split);
  CHECK(half.train == Texts{"p1[a</s>]", "p1[b</s>]"});
  CHECK(half.eval == Texts{"p2[a</s>]", "p2[b</s>]"});
  CHECK(records_of_manifest(make_manifest({}, options, SampleEncoder(options.encoder))) == RecordKind::pairs);
}

TEST_CASE("a pair is dropped if one of its answers is too long") {
  DatasetOptions options{.encoder = encoder_options(RecordKind::pairs)};
  options.most_tokens = 5;
  options.skip_bad = true;
  const std::string conversation =
      R"({"prompt":[{"role":"user","content":"q"}],"chosen":[{"role":"assistant","content":"a"}],)"
      R"("rejected":[{"role":"assistant","content":"b"}]})";
  const Written some = written(
      pair(1) + "{\"prompt\":\"p\",\"chosen\":\"a\",\"rejected\":\"too long\"}\n" + conversation + "\n",
      options);
  CHECK(some.counts.samples == 1);
  CHECK(some.counts.bad == 2);
  CHECK(some.counts.first_bad == "records.jsonl:2: has 10 tokens, must have at most 5");
  options.most_tokens = 0;
  CHECK(written(conversation + "\n", options).train.back().ends_with("assistant\n[b<|im_end|>\n]"));
}

TEST_CASE("a record of Alpaca is trained on its output, unless it has the field of texts") {
  const DatasetOptions options{.encoder = encoder_options(RecordKind::samples)};
  const std::string members = R"({"instruction":"i","input":"j","output":"o")";
  const Texts instructed = written(members + "}", options).train;
  REQUIRE(instructed.size() == 1);
  CHECK_MESSAGE(
      instructed[0].starts_with("<|im_start|>user\ni\nj<|im_end|>\n<|im_start|>assistant\n[o<|im_end|>]"),
      instructed[0]);
  CHECK(written(members + R"(,"text":"t"})", options).train == Texts{"[t</s>]"});
}

TEST_CASE("a record of another kind is refused, with what to do") {
  CHECK(error(R"({"prompt":"p","chosen":"a","rejected":"b"})", RecordKind::samples)
            .find("it may be a pair, which prepare --records pairs reads") != std::string::npos);
  CHECK(error(R"({"chosen":"xa","rejected":"xb"})", RecordKind::samples).find("--records pairs") !=
        std::string::npos);
  CHECK(error(R"({"prompt":"p","completion":"a"})", RecordKind::pairs).find("has no \"chosen\"") !=
        std::string::npos);
  CHECK(error(R"({"prompt":"p","completion":"a"})", RecordKind::rollouts).find("has none of \"advantage\"") !=
        std::string::npos);
  CHECK(error(R"({"text":"t","chosen":"a"})", RecordKind::samples) == "");
  EncoderOptions all = encoder_options(RecordKind::pairs);
  all.train_on = TrainOn::all;
  CHECK(test::error_of([&] { SampleEncoder encoder(all); }) ==
        "of pairs only the answers are trained: omit train_on = \"all\"");
}

TEST_CASE("the kind of records is part of the identity of samples, unless they are samples") {
  const auto identity = [](RecordKind kind) { return SampleEncoder(encoder_options(kind)).identity(); };
  CHECK(identity(RecordKind::samples).find("records") == std::string::npos);
  CHECK(identity(RecordKind::pairs).find(R"("records":"pairs")") != std::string::npos);
  CHECK(records_of_manifest("{" + identity(RecordKind::samples) + "}") == RecordKind::samples);
  CHECK(records_of_manifest("{" + identity(RecordKind::rollouts) + "}") == RecordKind::rollouts);
  CHECK(records_of_manifest("") == RecordKind::samples);
}

TEST_CASE("rollouts have columns, whose values are 0 at tokens that are not trained") {
  const DatasetOptions options{.encoder = encoder_options(RecordKind::rollouts)};
  const Written two =
      written(R"({"prompt":"p","completion":"a","logprobs":[-1,-2],"advantage":0.5})"
              "\n"
              R"({"prompt_ids":[65,66],"completion_ids":[67,68],"logprobs":[-3,-4],"advantages":[7,8]})",
              options);
  CHECK(two.train == Texts{"p[a</s>]", "AB[CD]"});
  const TokenFile file(kTokens);
  CHECK(values_of(*logprobs_of(file)) == Floats{0, -1, -2, 0, 0, -3, -4});
  CHECK(values_of(*advantages_of(file)) == Floats{0, 0.5, 0.5, 0, 0, 7, 8});
  CHECK(values_of(*advantages_of(TokenFile(kTokens, 1))).size() == 7);  // of the first document alone, too

  written(R"({"prompt":"p","completion":"a","advantage":1})", options);
  const TokenFile other(kTokens);
  CHECK(logprobs_of(other) == nullptr);
  CHECK(values_of(*advantages_of(other)) == Floats{0, 1, 1});
  write_token_column(advantages_path(kTokens), "other", Floats{0, 1, 1});
  CHECK(test::error_of([&] { advantages_of(other); }).find("was made for other tokens") != std::string::npos);
  fs::remove(advantages_path(kTokens));
  CHECK(test::error_of([&] { advantages_of(other); }) ==
        "record_documents.tok.advantages: is missing, and holds values of record_documents.tok: copy it, "
        "too, or "
        "make it again with prepare");
  written(pair(1), {.encoder = encoder_options(RecordKind::pairs)});
  CHECK(test::error_of([&] { advantages_of(TokenFile(kTokens)); }) ==
        "record_documents.tok: has no rollouts and no labels: make it with prepare --records");
}

TEST_CASE("a column of log-probabilities with one above 0 is refused with its token, value and bound") {
  const auto error_of_last = [](float last) {
    TokenWriter writer(kTokens, 100);
    writer.add_document(std::vector<int32_t>{65, 66, 67}, std::vector<uint8_t>{0, 1, 1}, {},
                        {.logprobs = Floats{-3, last}, .advantages = Floats{1, 1}});
    writer.finish();
    return test::error_of([] { logprobs_of(TokenFile(kTokens)); });
  };
  CHECK(error_of_last(-4) == "");
  for (const float value : {5.25f, std::numeric_limits<float>::quiet_NaN()})
    CHECK(test::missing_from(error_of_last(value),
                             {logprobs_path(kTokens), str("has ", value, " for token 2"), "at most 0.001"}) ==
          "");
}

TEST_CASE("rewards are compared in their group, and groups are never split") {
  DatasetOptions options{.encoder = encoder_options(RecordKind::rollouts)};
  const std::string lines = rewarded("a", 1, "x") + rewarded("b", 2, "x") + rewarded("c", 5, "y");
  CHECK(written(lines, options).train == Texts{"p[a</s>]", "p[b</s>]", "p[c</s>]"});
  const float far = advantages_of(std::vector<double>{1, 2})[1];
  CHECK(values_of(*advantages_of(TokenFile(kTokens))) == Floats{0, -far, -far, 0, far, far, 0, 0, 0});
  CHECK(written(lines, options, 1.5).train ==
        Texts{"p[a</s>]", "p[b</s>]", "p[c</s>]", "p[c</s>]"});  // the second group twice
  options.eval_share = 0.5;
  const Written half = written(lines, options);
  CHECK(half.train == Texts{"p[a</s>]", "p[b</s>]"});
  CHECK(half.eval == Texts{"p[c</s>]"});
  CHECK(half.counts.samples == 3);
  CHECK(error(lines + rewarded("d", 1, "x"), RecordKind::rollouts) ==
        "records.jsonl:4: is of group \"x\", which ended before: the records of a group must follow one "
        "another");
}

TEST_CASE("values that do not fit the tokens of a rollout are refused with both numbers") {
  CHECK(error(R"({"prompt":"p","completion":"a","logprobs":[-1],"advantage":1})", RecordKind::rollouts)
            .starts_with("records.jsonl:1: has 1 logprobs for 2 trained tokens"));
  CHECK(error(R"({"prompt":"p","completion":"a","advantages":[1,2,3]})", RecordKind::rollouts)
            .starts_with("records.jsonl:1: has 3 advantages for 2 trained tokens"));
  CHECK(error(R"({"prompt_ids":[1],"completion_ids":[999],"advantage":1})", RecordKind::rollouts) ==
        "records.jsonl:1: has the token 999, which is outside the vocabulary of 262");
  CHECK(error("{\"prompt\":\"p\",\"completion\":\"a\",\"advantage\":1}\n"
              "{\"prompt\":\"p\",\"completion\":\"a\",\"advantage\":1,\"logprobs\":[-1,-1]}\n",
              RecordKind::rollouts) ==
        "records.jsonl:2: has \"logprobs\", unlike the rollouts before: all must have them, or none");
}

TEST_CASE("prepare --records writes and shows both answers of a pair, and the columns of rollouts") {
  encoder_options(RecordKind::samples);
  write("records.jsonl", pair(1) + pair(2));
  const Run pairs = prepare({"--records", "pairs", "--show", "1", "records.jsonl"});
  CHECK(pairs.status == 0);
  CHECK(
      pairs.out.starts_with("--- records.jsonl:1, chosen: 4 tokens, 2 trained\np1»a</s>«\n"
                            "--- records.jsonl:1, rejected: 4 tokens, 2 trained\np1»b</s>«\nread 1 file"));
  CHECK(pairs.out.find(": 2 pairs; dropped 0 empty") != std::string::npos);
  CHECK(documents_in(kTokens).size() == 4);
  CHECK(records_of_manifest(TokenFile(kTokens).manifest()) == RecordKind::pairs);

  write("records.jsonl", R"({"prompt":"p","completion":"a","label":true})"
                         "\n"
                         R"({"prompt":"q","completion":"b","label":false})");
  const std::string labels = prepare({"--records", "labels", "--show", "1", "records.jsonl"}).out;
  CHECK(labels.find("--- records.jsonl:1, the completion of the record before: ") != std::string::npos);
  CHECK(labels.find("rejected") == std::string::npos);
  CHECK(labels.find(": 2 labeled answers; ") != std::string::npos);

  write("records.jsonl", rewarded("a", 1, "x") + rewarded("b", 2, "x"));
  const Run rollouts = prepare({"--records", "rollouts", "records.jsonl"});
  CHECK(rollouts.out.find(": 2 rollouts; dropped 0 empty") != std::string::npos);
  CHECK(fs::exists(advantages_path(kTokens)));
  CHECK(prepare({"records.jsonl", "--records", "pairs"}).err.find("has no \"chosen\"") != std::string::npos);

  fs::remove_all("pair_words");
  write("records.jsonl", R"({"prompt":"ban","chosen":"banana","rejected":"bandana"})");
  std::istringstream in;
  std::ostringstream out, err;
  CHECK(run_prepare({"--records", "pairs", "--train-tokenizer", "258", "--tokenizer", "pair_words",
                     "--chat-template", "chatml", "--out", kTokens, "records.jsonl"},
                    {in, out, err}) == 0);
  for (const std::string& path : {std::string(kTokens), std::string(kEval), advantages_path(kTokens)})
    fs::remove(path);
}
