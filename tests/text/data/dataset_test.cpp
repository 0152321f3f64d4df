#include "text/data/dataset.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "runtime/fingerprint.h"
#include "runtime/parallel.h"
#include "tests/byte_tokenizer.h"
#include "tests/test.h"
#include "text/jinja/template_date.h"
#include "text/tokenizer/tokenizer.h"

using namespace flatshard;
namespace fs = std::filesystem;

namespace {

constexpr const char* kTokenizer = "dataset_tokenizer";
constexpr const char* kChat =
    "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": "
    "\"b\"}]}\n";

EncoderOptions chatml() {
  test::write_byte_tokenizer(kTokenizer);
  return {.tokenizer = kTokenizer, .chat_template = "chatml"};
}

void write(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

// The samples of files, as text with [ ] around trained tokens.
struct Outcome {
  std::vector<std::string> samples;
  DatasetCounts counts;
};
Outcome outcome_of(const std::vector<DatasetFile>& files, const DatasetOptions& options) {
  const SampleEncoder encoder(options.encoder);
  const std::string path = "dataset_test.tok";
  TokenWriter writer(path, encoder.vocab());
  Outcome out{{}, write_dataset(files, options, encoder, writer, nullptr)};
  writer.finish();
  const TokenFile file(path);
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
    out.samples.push_back(text);
  });
  fs::remove(path);
  return out;
}

using Texts = std::vector<std::string>;

}  // namespace

TEST_CASE(
    "of a conversation the assistant's turns are trained, of a prompt the completion, of a text everything") {
  write("d.jsonl", std::string(kChat) + "{\"prompt\": \"p\", \"completion\": \"c\"}\n{\"text\": \"t\"}\n");
  const Outcome out = outcome_of({{"d.jsonl"}}, {.encoder = chatml()});
  CHECK(out.samples == Texts{"<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n[b<|im_end|>]\n",
                             "p[c</s>]", "[t</s>]"});
  CHECK(out.counts.samples == 3);
  CHECK(out.counts.trained == 6);
}

TEST_CASE("text in a message never becomes a special token") {
  write("d.jsonl",
        "{\"messages\": [{\"role\": \"user\", \"content\": \"<|im_end|></s>\"}, {\"role\": \"assistant\", "
        "\"content\": \"b\"}]}\n");
  const SampleEncoder encoder(chatml());
  read_records("d.jsonl", TextSplit::none, [&](const Record& record) {
    const Sample sample = encoder.encode(record);
    // Three markers of the template in each turn but for the newline after it: start, end; and none of the
    // text's.
    CHECK(std::count_if(sample.tokens.begin(), sample.tokens.end(), [](int32_t t) { return t >= 256; }) == 4);
    CHECK(encoder.decode(sample.tokens).find("user\n<|im_end|></s><|im_end|>\n") != std::string::npos);
  });
}

TEST_CASE("a bad record ends with its place and reason, or is counted") {
  write("d.jsonl", std::string(kChat) + "{\"messages\": []}\n" + kChat + "{\"messages\"\n");
  DatasetOptions options{.encoder = chatml()};
  CHECK(test::error_of([&] { outcome_of({{"d.jsonl"}}, options); }).starts_with("d.jsonl:2: "));
  options.skip_bad = true;
  const Outcome out = outcome_of({{"d.jsonl"}}, options);
  CHECK(out.counts.samples == 2);
  CHECK(out.counts.bad == 2);
  CHECK(out.counts.first_bad.starts_with("d.jsonl:2: "));
}

TEST_CASE("bad conversations are refused with file, line and reason, or counted") {
  DatasetOptions options{.encoder = chatml()};
  options.encoder.chat_template = "llama2";
  const std::string user = "{\"role\": \"user\", \"content\": \"a\"}",
                    assistant = "{\"role\": \"assistant\", \"content\": \"b\"}";
  const std::vector<std::pair<std::string, std::string>> bad{
      {"{\"messages\": [" + user + ", ", "is not valid JSON (at byte 49 of the line)"},
      {"{\"messages\": []}", "\"messages\" has no messages"},
      {"{\"conversations\": []}", "\"conversations\" has no messages"},
      {"{\"prompt\": [], \"completion\": [" + assistant + "]}", "\"prompt\" has no messages"},
      {"{\"messages\": [" + assistant + ", " + user + "]}", "message 1 has the role assistant"},
      {"{\"messages\": [" + user + ", " + user + "]}", "message 2 has the role user"},
      {"{\"messages\": [" + user + ", {\"role\": \"x\", \"content\": \"b\"}]}", "message 2 has the role x"},
      {"{\"messages\": [" + user + ", {\"role\": \"assistant\"}]}",
       "llama2:12: a value of type dict has no member 'content'"}};
  std::string all;
  for (const auto& [line, reason] : bad) {
    write("d.jsonl", kChat + line + "\n" + kChat);
    const std::string error = test::error_of([&] { outcome_of({{"d.jsonl"}}, options); });
    CHECK_MESSAGE(error.starts_with("d.jsonl:2: "), error);
    CHECK_MESSAGE(error.find(reason) != std::string::npos, error);
    all += line + "\n" + kChat;
  }
  write("d.jsonl", all);
  options.skip_bad = true;
  const Outcome out = outcome_of({{"d.jsonl"}}, options);
  CHECK(out.counts.samples == std::ssize(bad));
  CHECK(out.counts.bad == std::ssize(bad));
  CHECK(out.counts.first_bad.starts_with("d.jsonl:1: "));
}

TEST_CASE("a conversation needs a tokenizer and a template, and the error says where to find one") {
  write("d.jsonl", kChat);
  CHECK(test::error_of([&] { outcome_of({{"d.jsonl"}}, {}); }) ==
        "d.jsonl:1: conversations and prompts need a tokenizer; bytes have no special tokens");
  EncoderOptions options = chatml();
  options.chat_template = "";
  CHECK(test::error_of([&] { outcome_of({{"d.jsonl"}}, {.encoder = options}); }).find("chatml") !=
        std::string::npos);
  CHECK(test::error_of([&] { SampleEncoder({.chat_template = "chatml"}); }) ==
        "the chat template chatml needs a tokenizer, but none is given");
}

TEST_CASE("of a record the members that are not null decide what it is") {
  write("d.jsonl", R"({"text": "a", "messages": null, "prompt": null, "completion": null}
{"text": null, "messages": null, "prompt": "b", "completion": "c"}
{"text": null, "messages": [{"role": "user", "content": "d"}, {"role": "assistant", "content": "e", "name": null}]}
)");
  CHECK(
      outcome_of({{"d.jsonl"}}, {.encoder = chatml()}).samples ==
      Texts{"[a</s>]", "b[c</s>]", "<|im_start|>user\nd<|im_end|>\n<|im_start|>assistant\n[e<|im_end|>]\n"});
}

TEST_CASE("the date that a template prints is that of the options, and is in the manifest") {
  write("d.jsonl", kChat);
  write(
      "dated.jinja",
      "{{ strftime_now('%d %b %Y') }}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}</s>{% endfor %}");
  DatasetOptions options{.encoder = chatml()};
  options.encoder.chat_template = "dated.jinja";
  options.encoder.date = "2025-03-09";
  CHECK(prints_date(options.encoder));
  CHECK(outcome_of({{"d.jsonl"}}, options).samples == Texts{"09 Mar 2025<|user|>a</s><|assistant|>[b</s>]"});
  const auto date_of = [](const DatasetOptions& of) {
    return date_of_manifest(make_manifest({{"d.jsonl"}}, of, SampleEncoder(of.encoder)));
  };
  CHECK(date_of(options) == "2025-03-09");
  DatasetOptions other = options;
  other.encoder.date = "2025-03-10";
  CHECK(token_file_of("d.jsonl", other) != token_file_of("d.jsonl", options));
  other.encoder.date = "";
  CHECK(date_of(other) == todays_date());
  // A template that prints no date has the same tokens on every day.
  options.encoder.chat_template = other.encoder.chat_template = "chatml";
  CHECK_FALSE(prints_date(options.encoder));
  CHECK(date_of(options) == "");
  CHECK(token_file_of("d.jsonl", other) == token_file_of("d.jsonl", options));
}

TEST_CASE("samples without a token, or without one to train on, are dropped and counted") {
  write("d.jsonl", std::string("{\"text\": \"\"}\n") + kChat +
                       "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n");
  const Outcome out = outcome_of({{"d.jsonl"}}, {.encoder = chatml()});
  CHECK(out.counts.samples == 1);
  CHECK(out.counts.empty == 1);
  CHECK(out.counts.untrained == 1);
  CHECK(dropped(out.counts) == "1 empty, 1 without trained tokens");
}

TEST_CASE("samples are written in proportion to their file's weight") {
  write("d.txt", "1\n\n2\n\n3\n\n4\n");
  write("e.txt", "5");
  const DatasetOptions options{.split = TextSplit::blank_lines};
  CHECK(outcome_of({{"d.txt", 0.5}, {"e.txt", 2}}, options).samples == Texts{"[2\n]", "[4\n]", "[5]", "[5]"});
  CHECK(outcome_of({{"d.txt", 1.5}}, options).samples ==
        Texts{"[1\n]", "[2\n]", "[2\n]", "[3\n]", "[4\n]", "[4\n]"});
}

TEST_CASE("the samples do not depend on the number of threads") {
  std::string text;
  for (int i = 0; i < 9000; ++i) text += str("{\"text\": \"", i, "\"}\n");
  write("d.jsonl", text);
  const int before = thread_count();
  set_thread_count(1);
  const Texts one = outcome_of({{"d.jsonl"}}, {.encoder = chatml()}).samples;
  set_thread_count(4);
  CHECK(outcome_of({{"d.jsonl"}}, {.encoder = chatml()}).samples == one);
  CHECK(one.size() == 9000);
  set_thread_count(before);
}

TEST_CASE("tokens are stale if their input or the tokenizer has changed") {
  write("d.jsonl", kChat);
  const DatasetOptions options{.encoder = chatml()};
  const SampleEncoder encoder(options.encoder);
  const std::string manifest = make_manifest({{"d.jsonl"}}, options, encoder);
  const std::string tokenizer = Tokenizer(kTokenizer).identity();
  CHECK(why_stale(manifest, tokenizer) == "");
  CHECK(why_stale(manifest, "") == "");
  CHECK(why_stale(manifest, "other").find("was made with the tokenizer " + tokenizer) == 0);
  write("d.jsonl", std::string(kChat) + kChat);
  CHECK(why_stale(manifest, tokenizer)
            .find(str("d.jsonl when that had ", std::string_view(kChat).size(), " bytes")) !=
        std::string::npos);
  fs::remove("d.jsonl");
  CHECK(why_stale(manifest, tokenizer) == "");
  for (const char* other :
       {"", "[]", "{\"tokenizer\": 1, \"inputs\": [1, {\"path\": 2}]}", "{\"inputs\": {}}", "x"})
    CHECK(why_stale(other, tokenizer) == "");
  // A name that no file can have, which is another error than that of a missing file.
  const std::string name(1000, 'x');
  CHECK(why_stale("{\"inputs\": [{\"path\": \"" + name + "\", \"content\": \"c\"}]}", tokenizer) == "");
}

TEST_CASE("the name of a prepared file changes with every input of its tokens") {
  write("d.jsonl", kChat);
  const DatasetOptions options{.encoder = chatml()};
  const std::string first = token_file_of("d.jsonl", options);
  CHECK(token_file_of("d.jsonl", options) == first);
  CHECK(first.starts_with(".flatshard/d.jsonl."));
  DatasetOptions other = options;
  other.encoder.train_on = TrainOn::last;
  CHECK(token_file_of("d.jsonl", other) != first);
  other = options;
  other.encoder.chat_template = "zephyr";
  CHECK(token_file_of("d.jsonl", other) != first);
  const auto differs = [&](auto&& change) {
    other = options;
    change(other);
    return token_file_of("d.jsonl", other) != first;
  };
  CHECK(differs([](DatasetOptions& o) { o.encoder.text_field = "body"; }));
  CHECK(differs([](DatasetOptions& o) { o.columns = {"messages"}; }));
  CHECK(differs([](DatasetOptions& o) { o.encoder.records = RecordKind::pairs; }));
  CHECK(differs([](DatasetOptions& o) { o.encoder = {}; }));  // bytes
  test::write_byte_tokenizer(kTokenizer, true);
  CHECK(token_file_of("d.jsonl", options) != first);
  test::write_byte_tokenizer(kTokenizer);
  CHECK(token_file_of("d.jsonl", options) == first);
  fs::create_directories("dataset_moved");
  write("dataset_moved/d.jsonl", kChat);
  CHECK(fs::path(token_file_of("dataset_moved/d.jsonl", options)).filename() != fs::path(first).filename());
  write("d.jsonl", std::string(kChat) + kChat);
  CHECK(token_file_of("d.jsonl", options) != first);
}

TEST_CASE("tokens of a large text are made again after a change of any byte, whatever its times are") {
  constexpr size_t kBytes = size_t{12} << 20;
  const std::string path = "large.txt";
  write(path, std::string(kBytes, 'a'));
  const std::string before = token_file_of(path, {}), earlier = earlier_token_file_of(path, {}),
                    manifest = make_manifest({{path}}, {}, SampleEncoder({}));
  CHECK(token_file_of(path, {}) == before);
  CHECK(inputs_of_manifest(manifest) == Texts{fs::absolute(path).string()});
  const auto modified = fs::last_write_time(path);
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(100000);
    file.put('b');
  }
  fs::last_write_time(path, modified);
  CHECK(token_file_of(path, {}) != before);
  CHECK(test::missing_from(why_stale(manifest, ""),
                           {"large.txt when that had 12,582,912 bytes", "now it has"}) == "");
  CHECK(earlier_token_file_of(path, {}) == earlier);  // 64 blocks were hashed
  const std::string sampled =
      "{\"inputs\": [{\"path\": \"" + path + "\", \"content\": \"" + sampled_fingerprint({path}) + "\"}]}";
  CHECK(why_stale(sampled, "") == "");  // in a token file of an earlier version
}
