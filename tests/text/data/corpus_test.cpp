#include "text/data/corpus.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <sys/stat.h>

#include "runtime/base64.h"
#include "runtime/text.h"
#include "source_dir.h"
#include "tests/process.h"
#include "tests/test.h"
#include "text/data/dataset.h"
#include "text/data/sample_encoder.h"
#include "text/data/token_file.h"
#include "tools/programs.h"

using namespace flatshard;
namespace fs = std::filesystem;

namespace {

using Texts = std::vector<std::string>;

void write(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

Texts documents_of(const std::string& name, const std::string& content, TextSplit split = TextSplit::none,
                   const std::string& field = "text") {
  write(name, content);
  Texts found;
  const int64_t bytes = read_records(name, split, [&](const Record& record) {
    found.push_back(record.is_json ? text_field(record.text, field, record.where) : record.text);
  });
  CHECK(bytes == static_cast<int64_t>(content.size()));
  return found;
}

std::string jsonl_error(const std::string& content) {
  return test::error_of([&] { documents_of("d.jsonl", content); });
}

// The result of a run of prepare, which writes out.tok and eval.tok.
struct Run {
  int status;
  std::string out, err;
};

Run prepare(const Texts& arguments, const std::string& standard_input = "") {
  for (const char* const name : {"out.tok", "eval.tok", "out.tok.images", "eval.tok.images"})
    fs::remove(name);
  std::istringstream in(standard_input);
  std::ostringstream out, err;
  const int status = run_prepare(arguments, {in, out, err});
  return {status, out.str(), err.str()};
}

// The error of a run that must fail and leave no files.
std::string prepare_error(const Texts& arguments, const std::string& standard_input = "") {
  const Run run = prepare(arguments, standard_input);
  CHECK(run.status == 1);
  CHECK(run.out.empty());
  CHECK(run.err.find('\n') == run.err.size() - 1);
  for (const auto& entry : fs::directory_iterator(".")) {
    const std::string name = entry.path().filename().string();
    CHECK_MESSAGE(!(name.starts_with("out.tok") || name.starts_with("eval.tok")), name);
  }
  return run.err;
}

Texts documents_in(const std::string& path) {
  const TokenFile file(path);
  CHECK(file.vocab() == 256);
  Texts found;
  for (const uint64_t start : file.starts_in(0, file.size())) {
    const auto end = file.starts_in(static_cast<int64_t>(start) + 1, file.size() + 1);
    std::string text;
    std::vector<int32_t> tokens(end.front() - start);
    file.read(static_cast<int64_t>(start), tokens);
    for (const int32_t token : tokens) text += static_cast<char>(token);
    found.push_back(text);
  }
  return found;
}

std::string numbered_jsonl(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += str("{\"text\": \"document ", i, "\"}\n");
  return text;
}

std::string bytes_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

TEST_CASE("a text file is one document, byte for byte") {
  for (const std::string& text : {std::string("a\n\nb"), std::string("a\r\n\n"), std::string("\n"),
                                  std::string("caf\xe9 au lait\n\xc3\xa9"), std::string()})
    CHECK(documents_of("d.txt", text) == Texts{text});
}

TEST_CASE("with --split blank-lines, blank lines separate documents and belong to none") {
  const TextSplit options = TextSplit::blank_lines;
  CHECK(documents_of("d.txt", "a\nb\n\nc", options) == Texts{"a\nb\n", "c"});
  CHECK(documents_of("d.txt", "\n \t\r\na\n\n\n\nb\r\n\r\n", options) == Texts{"a\n", "b\r\n"});
  CHECK(documents_of("d.txt", "\n\n", options) == Texts{""});
  CHECK(documents_of("d.txt", "", options) == Texts{""});
}

TEST_CASE("each line of a .jsonl file is a document, in order") {
  CHECK(documents_of("d.jsonl",
                     "{\"text\": \"a\\nb\", \"n\": [1]}\r\n{\"text\": \"\"}\n{\"text\": \"\\u00e9\"}") ==
        Texts{"a\nb", "", "\xc3\xa9"});
  CHECK(documents_of("d.jsonl", "{\"text\": 1, \"body\": \"b\"}\n", TextSplit::none, "body") == Texts{"b"});
  CHECK(documents_of("d.jsonl", "").empty());
}

TEST_CASE("a .jsonl line without a document is an error with line and reason") {
  const std::string good = "{\"text\": \"a\"}\n";
  const auto missing = [](const std::string& json, std::initializer_list<std::string> parts) {
    return test::missing_from(jsonl_error(json), parts);
  };
  CHECK(missing(good + "{\"text\" \"a\"}\n", {"d.jsonl:2: ", "JSON", "byte 11"}) == "");
  CHECK(missing(good + "\n", {"d.jsonl:2: ", "JSON", "byte 1 "}) == "");
  CHECK(missing(good + "{\"text\": \"a", {"d.jsonl:2: ", "JSON", "byte 12"}) == "");
  CHECK(missing(good + std::string("{\"text\": \"a\"}\0{", 15) + "\n", {"d.jsonl:2: ", "JSON", "byte 14"}) ==
        "");
  CHECK(missing("{\"text\": \"\xff\"}\n", {"d.jsonl:1: ", "JSON", "byte 11"}) == "");
  CHECK(missing("{\"text\": 1e999}\n", {"d.jsonl:1: ", "number", "too large"}) == "");
  CHECK(missing("[\"a\"]\n", {"d.jsonl:1 (record 1): ", "string", "object"}) == "");
  CHECK(missing(good + good + "{\"a\": 1, \"b\\n\": 2}\n",
                {"d.jsonl:3: ", "no field \"text\"", "\"a\", \"b\\n\""}) == "");
  CHECK(missing("{}\n", {"d.jsonl:1: ", "no field \"text\"", "none"}) == "");
  CHECK(missing("{\"text\": null}\n", {"d.jsonl:1: ", "\"text\"", "null", "string"}) == "");
}

TEST_CASE("a line of JSON nested a million deep is read or refused, without a crash") {
  const std::string open(1000000, '['), close(1000000, ']');
  CHECK(jsonl_error("{\"text\": \"a\", \"x\": " + open + close + "}\n") == "");
  CHECK(test::missing_from(jsonl_error("{\"x\": " + open), {"d.jsonl:1: ", "JSON", "byte 1000007"}) == "");
  CHECK(jsonl_error(open) ==
        "d.jsonl:1: ends before its array does, after 0 complete elements: it is cut off");
}

TEST_CASE("a missing corpus file or a folder is an error") {
  const auto error = [](const char* path) {
    return test::error_of([&] { read_records(path, TextSplit::none, [](const Record&) {}); });
  };
  CHECK(error("absent.txt") == "absent.txt: cannot open: No such file or directory");
  CHECK(error(".") == ".: is a folder, must be a file: name the files in it");
}

TEST_CASE("a token of the byte vocabulary is a byte") {
  CHECK(byte_tokens(std::string("a\0\xff", 3)) == std::vector<int32_t>{97, 0, 255});
}

TEST_CASE(
    "the evaluation split takes its share of any number of documents, and appending documents moves none") {
  for (const double share : {0.01, 0.05, 0.3, 0.5, 0.9}) {
    int64_t taken = 0;
    for (int64_t i = 0; i < 1000; ++i) {
      taken += copies_of_document(i, share);
      CHECK(taken == static_cast<int64_t>(std::floor(static_cast<double>(i + 1) * share)));
    }
  }
  CHECK(copies_of_document(19, 0.05) == 1);
  CHECK(copies_of_document(20, 0.05) == 0);
}

TEST_CASE("prepare writes every non-empty document in order and reports the counts") {
  write("a.txt", "first\xc3\xa9");
  write("b.jsonl", "{\"text\": \"second\"}\n{\"text\": \"\"}\n{\"text\": \"third\"}\n");
  write("c.txt", "");
  const Run run = prepare({"--out", "out.tok", "a.txt", "b.jsonl", "c.txt"});
  CHECK(run.status == 0);
  CHECK(run.err.empty());
  CHECK(run.out == str("read 3 files, 57 B: 3 documents; dropped 2 empty\n"
                       "out.tok: 3 documents, 18 tokens, vocabulary 256, ",
                       human_bytes(static_cast<int64_t>(fs::file_size("out.tok"))), "\n"));
  CHECK(documents_in("out.tok") == Texts{"first\xc3\xa9", "second", "third"});
}

TEST_CASE("prepare refuses a bad record with file and line, or counts it with --skip-bad") {
  write("d.jsonl", "{\"text\": \"a\"}\n{\"text\": \n{\"body\": \"b\"}\n{\"text\": \"c\"}\n");
  CHECK(test::missing_from(prepare_error({"--out", "out.tok", "d.jsonl"}),
                           {"prepare: d.jsonl:2: ", "JSON", "byte 10"}) == "");
  const Run run = prepare({"--out", "out.tok", "--skip-bad", "d.jsonl"});
  CHECK(run.status == 0);
  CHECK(run.out.starts_with("read 1 file, 52 B: 2 documents; dropped 0 empty, 2 bad\n"));
  CHECK(test::missing_from(run.err, {"prepare: the first bad record: d.jsonl:2: ", "JSON", "byte 10"}) == "");
  CHECK(documents_in("out.tok") == Texts{"a", "c"});
  write("d.jsonl", "{}\n");
  CHECK(test::missing_from(prepare_error({"--out", "out.tok", "--skip-bad", "d.jsonl"}),
                           {"prepare: no sample", "0 empty, 1 bad", "d.jsonl:1: ", "no field \"text\"",
                            "its fields: none"}) == "");
}

TEST_CASE("prepare refuses or counts samples that are longer than --max-tokens, with file and line") {
  write("d.jsonl", "{\"text\": \"ab\"}\n{\"text\": \"abcd\"}\n{\"text\": \"abc\"}\n");
  CHECK(prepare_error({"--out", "out.tok", "--max-tokens", "3", "d.jsonl"}) ==
        "prepare: d.jsonl:2: has 4 tokens, must have at most 3\n");
  const Run run = prepare({"--out", "out.tok", "--max-tokens", "3", "--skip-bad", "d.jsonl"});
  CHECK(run.status == 0);
  CHECK(run.err == "prepare: the first bad record: d.jsonl:2: has 4 tokens, must have at most 3\n");
  CHECK(documents_in("out.tok") == Texts{"ab", "abc"});
}

TEST_CASE("a list of weights ends before the files, in every spelling") {
  write("a.jsonl", "{\"text\": \"a\"}\n{\"text\": \"b\"}\n");
  write("b.jsonl", "{\"text\": \"c\"}\n");
  const Texts expected{"b", "c", "c"};
  for (const Texts& arguments : {Texts{"--out", "out.tok", "--weights", "0.5,2", "a.jsonl", "b.jsonl"},
                                 Texts{"--out", "out.tok", "--weights=0.5,2", "a.jsonl", "b.jsonl"},
                                 Texts{"--weights", "0.5,2", "--out", "out.tok", "a.jsonl", "b.jsonl"},
                                 Texts{"a.jsonl", "--weights", "0.5,2", "b.jsonl", "--out", "out.tok"},
                                 Texts{"a.jsonl", "b.jsonl", "--out", "out.tok", "--weights", "0.5,2"}}) {
    const Run run = prepare(arguments);
    CHECK_MESSAGE(run.status == 0, run.err);
    CHECK(documents_in("out.tok") == expected);
  }
  CHECK(prepare_error({"--out", "out.tok", "--weights", "0.5", "a.jsonl", "b.jsonl"}) ==
        "prepare: --weights has 1 number for 2 files\n");
  CHECK(prepare_error({"--out", "out.tok", "--weights", "0.5,x", "a.jsonl", "b.jsonl"}).find("x") !=
        std::string::npos);
}

TEST_CASE("prepare splits text files, takes another field, and reads a list of files") {
  write("a.txt", "1\n\n2\n");
  write("b.jsonl", "{\"body\": \"3\"}\n");
  write("list", "b.jsonl\na.txt\n");
  const Texts options{"--out", "out.tok", "--split", "blank-lines", "--text-field", "body"};
  const auto with = [&](Texts more) {
    more.insert(more.begin(), options.begin(), options.end());
    return more;
  };
  CHECK(prepare(with({"a.txt", "--files-from", "-"}), "b.jsonl\n").status == 0);
  CHECK(documents_in("out.tok") == Texts{"1\n", "2\n", "3"});
  CHECK(prepare(with({"--files-from", "list"})).status == 0);
  CHECK(documents_in("out.tok") == Texts{"3", "1\n", "2\n"});
}

TEST_CASE("prepare splits off the evaluation the same way each time, and loses no document") {
  write("d.jsonl", numbered_jsonl(45));
  const Texts arguments{"--out", "out.tok", "--eval-out", "eval.tok", "d.jsonl"};
  CHECK(prepare(arguments).status == 0);
  CHECK(documents_in("eval.tok") == Texts{"document 19", "document 39"});
  Texts others = documents_in("out.tok");
  CHECK(others.size() == 43);
  CHECK(others[19] == "document 20");
  const std::string first = bytes_of("out.tok"), first_eval = bytes_of("eval.tok");
  CHECK(prepare(arguments).status == 0);
  CHECK(bytes_of("out.tok") == first);
  CHECK(bytes_of("eval.tok") == first_eval);
}

TEST_CASE("a split that leaves a side empty is an error that says what to do") {
  write("a.txt", "1\n\n2\n");
  CHECK(prepare_error({"--out", "out.tok", "--eval-out", "eval.tok", "a.txt"}) ==
        "prepare: one document cannot be split between --out and --eval-out; split text files "
        "with --split blank-lines, add documents, or omit --eval-out\n");
  CHECK(prepare_error({"--out", "out.tok", "--eval-out", "eval.tok", "--split", "blank-lines", "a.txt"}) ==
        "prepare: with --eval-share 0.05 none of the 2 documents goes to --eval-out; use a larger share, or "
        "omit --eval-out\n");
  CHECK(prepare_error(
            {"--out", "out.tok", "--eval-out", "eval.tok", "--eval-share", "0.999999999999999999", "a.txt"})
            .starts_with("prepare: --eval-share is 1, must be above 0 and below 1"));
}

TEST_CASE("prepare reports a wrong argument on one line and leaves nothing behind") {
  write("a.txt", "text");
  write("empty.txt", "");
  fs::create_directory("folder");
  const auto error = [](Texts arguments, const std::string& standard_input = "") {
    arguments.insert(arguments.begin(), {"--out", "out.tok"});
    return prepare_error(arguments, standard_input);
  };
  CHECK(error({}) == "prepare: no input files: name files, or a list of them with --files-from\n");
  CHECK(error({"a.txt", "no\nsuch"}) == "prepare: no such: cannot open: No such file or directory\n");
  CHECK(error({"folder"}) ==
        "prepare: folder: is a folder; name the files in it, perhaps with --files-from\n");
  CHECK(error({"empty.txt"}) == "prepare: the input has no text; 1 empty document read\n");
  CHECK(error({"--files-from", "-"}, "a.txt\n\n") == "prepare: standard input:2: is empty, must be a path\n");
  CHECK(error({"--files-from", "no-such-list"}) ==
        "prepare: --files-from \"no-such-list\": cannot open: No such file or directory\n");
  CHECK(error({"--eval-out", "./out.tok", "a.txt"}) ==
        "prepare: --out and --eval-out are the same file, out.tok\n");
  CHECK(error({"--eval-out", "a.txt", "a.txt"}) == "prepare: a.txt: is both read and written\n");
  CHECK(error({"--eval-out", "folder", "a.txt"}) == "prepare: folder: cannot write: Is a directory\n");
  CHECK(error({"--eval-share", "0.5", "a.txt"}).find("--eval-out") != std::string::npos);
  CHECK(error({"--split", "pages", "a.txt"}).find("blank-lines") != std::string::npos);
  CHECK(error({"--tokenizer", "x", "a.txt"}).starts_with("prepare: x: "));
  CHECK(prepare_error({"a.txt"}) ==
        "prepare: --out is required; usage: prepare FILES [OPTIONS], see prepare --help\n");
  CHECK(prepare_error({"--out", "a.txt/out.tok", "a.txt"})
            .starts_with("prepare: a.txt: cannot create the folder"));
  CHECK(bytes_of("a.txt") == "text");
}

TEST_CASE("a failure in the middle leaves an older token file as it was") {
  write("good.txt", "text");
  write("bad.jsonl", "{}\n");
  write("kept.tok", "older");
  CHECK(prepare_error({"--out", "kept.tok", "good.txt", "bad.jsonl"}) ==
        "prepare: bad.jsonl:1: has no field \"text\"; its fields: none; a conversation has \"messages\", "
        "\"conversations\", \"prompt\" or \"instruction\"\n");
  CHECK(bytes_of("kept.tok") == "older");
}

TEST_CASE("prepare trains a tokenizer once, uses it, and does not replace it") {
  fs::remove_all("words");
  std::string text;
  for (int i = 0; i < 300; ++i) text += "the same words again and again\n";
  write("a.txt", text);
  const Run trained =
      prepare({"--out", "out.tok", "--train-tokenizer", "300", "--tokenizer", "words", "a.txt"});
  CHECK(trained.status == 0);
  const std::string tokens = bytes_of("out.tok");
  {
    const TokenFile file("out.tok");
    CHECK(file.size() < static_cast<int64_t>(text.size()) / 3);
    CHECK(file.vocab() <= 300);
  }
  CHECK(prepare({"--out", "out.tok", "--tokenizer", "words", "a.txt"}).status == 0);
  CHECK(bytes_of("out.tok") == tokens);
  CHECK(prepare_error({"--out", "out.tok", "--train-tokenizer", "300", "--tokenizer", "words", "a.txt"}) ==
        "prepare: words: already exists: choose another name, or remove it\n");
  CHECK(prepare_error({"--out", "out.tok", "--train-tokenizer", "256", "--tokenizer", "w", "a.txt"})
            .find("--train-tokenizer") != std::string::npos);
}

TEST_CASE("prepare trains a tokenizer on messages, prompts and completions as on their texts") {
  fs::remove_all("words");
  fs::remove_all("chat_words");
  write("texts.jsonl",
        "{\"text\": \"banana bandana\"}\n{\"text\": \"cabana\"}\n{\"text\": \"ban\"}\n{\"text\": "
        "\"bandit\"}\n");
  write("chats.jsonl", R"({"messages": [{"role": "user", "content": "banana bandana"}, )"
                       R"({"role": "assistant", "content": "cabana"}]})"
                       "\n"
                       R"({"prompt": "ban", "completion": "bandit"})"
                       "\n");
  CHECK(prepare({"--out", "out.tok", "--train-tokenizer", "262", "--tokenizer", "words", "texts.jsonl"})
            .status == 0);
  const auto prepare_chats = [](const Texts& inputs) {
    Texts all{"--out",           "out.tok", "--train-tokenizer", "262",
              "--chat-template", "chatml",  "--tokenizer",       "chat_words"};
    all.insert(all.end(), inputs.begin(), inputs.end());
    return prepare(all);
  };
  CHECK(prepare_chats({"chats.jsonl"}).status == 0);
  CHECK(bytes_of("chat_words/tokenizer.json") == bytes_of("words/tokenizer.json"));

  fs::remove_all("chat_words");
  write("bad.jsonl", "{\"prompt\": 1}\n");
  const Run refused = prepare_chats({"chats.jsonl", "bad.jsonl"});
  CHECK(refused.err.starts_with("prepare: bad.jsonl:1: a record must have"));
  CHECK(prepare_chats({"chats.jsonl", "bad.jsonl", "--skip-bad"}).status == 0);
  CHECK(bytes_of("chat_words/tokenizer.json") == bytes_of("words/tokenizer.json"));
}

TEST_CASE("the texts of a message are its content, or the parts of it that have text") {
  const std::string line =
      R"({"conversations": [{"from": "human", "value": "a"}, {"role": "tool", "content": null},)"
      R"( {"role": "assistant", "content": [{"type": "text", "text": "b"}, {"type": "image"}]}]})";
  CHECK(texts_of({line, true, "c.jsonl:1"}, "text") == Texts{"a", "b"});
}

TEST_CASE("prepare shows samples with what is trained between marks") {
  write("a.txt", "text");
  const Run run = prepare({"--out", "out.tok", "--show", "1", "a.txt"});
  CHECK(run.out.starts_with("--- a.txt: 4 tokens, 4 trained\n»text«\n"));
}

TEST_CASE("prepare shows images by name and size, and writes where they are") {
  const std::string golden = str(kSourceDir, "/tests/golden/");
  fs::copy_file(golden + "images/rgb.jpeg", "cat.jpeg", fs::copy_options::overwrite_existing);
  write(
      "chats.jsonl",
      R"({"conversations": [{"from": "human", "value": "<image>What?"}, {"from": "gpt", "value": "the loss"}], "image": "cat.jpeg"}
{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}
{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], "images": ["gone.png"]}
)");
  const Texts arguments{"--out",  "out.tok", "--tokenizer", golden + "image_folders/idefics2",
                        "--show", "2",       "chats.jsonl"};
  const Run refused = prepare(arguments);
  CHECK(refused.status != 0);
  CHECK(test::missing_from(refused.err, {"chats.jsonl:3: gone.png: ", "No such file"}) == "");
  Texts skipping = arguments;
  skipping.push_back("--skip-bad");
  const Run run = prepare(skipping);
  CHECK(run.status == 0);
  CHECK(test::missing_from(
            run.out, {"--- chats.jsonl:1: 47 tokens, 3 trained", "User:[cat.jpeg: 29 x 19, 21 tokens] What?",
                      "Assistant:»the loss<end_of_utterance>«", "User: a<end_of_utterance>", "1 bad",
                      "69 tokens, 1 image, 7.2% trained"}) == "");
  const TokenFile file("out.tok");
  REQUIRE(file.has_images());
  CHECK(file.images()->size() == 1);
  CHECK(file.images()->name_of(file.images()->images_in(0, file.size()).at(0)) ==
        "cat.jpeg of chats.jsonl:1");
  Texts small = skipping;
  small.insert(small.end(), {"--image-longest-edge", "16"});
  CHECK(prepare(small).status == 0);
  CHECK(TokenFile("out.tok").image_input().rules.longest_edge == 16);
}

TEST_CASE("images in records are beside the token file, in a file of their own for each") {
  const std::string golden = str(kSourceDir, "/tests/golden/");
  std::string lines;
  for (const char* const name : {"rgb.jpeg", "gray.jpeg", "rgb.jpeg", "rgb.webp"})
    lines +=
        R"({"messages": [{"role": "user", "content": "What?"}, {"role": "assistant", "content": "the loss"}], "image": {"bytes": ")" +
        to_base64(bytes_of(golden + "images/" + name)) + "\"}}\n";
  write("held.jsonl", lines);
  CHECK(prepare({"--out", "out.tok", "--eval-out", "eval.tok", "--eval-share", "0.25", "--weights", "2",
                 "--tokenizer", golden + "image_folders/idefics3", "held.jsonl"})
            .status == 0);
  const auto kept = [&](const std::string& path) {
    const TokenFile file(path);
    std::vector<std::string> all;
    file.images()->each([&](const TokenImage& image) { all.push_back(file.images()->read(image)); });
    return all;
  };
  const std::string rgb = bytes_of(golden + "images/rgb.jpeg"), gray = bytes_of(golden + "images/gray.jpeg"),
                    webp = bytes_of(golden + "images/rgb.webp");
  CHECK(kept("out.tok") == Texts{rgb, rgb, gray, gray, rgb, rgb});
  CHECK(kept("eval.tok") == Texts{webp});
  CHECK(fs::file_size("out.tok.images") == 8 + rgb.size() + gray.size());
}

TEST_CASE("prepare --help names every option and succeeds") {
  const Run run = prepare({"--help"});
  CHECK(run.status == 0);
  CHECK(run.err.empty());
  for (const char* name :
       {"--out", "--eval-out", "--eval-share", "--text-field", "--split", "--files-from", "--null", "FILES"})
    CHECK(run.out.find(name) != std::string::npos);
}

TEST_CASE("a list of files may end names with zero bytes, but only with --null") {
  write("a b.txt", "1");
  write("c\nd.txt", "2");
  const std::string list("a b.txt\0c\nd.txt\0", 16);
  CHECK(prepare({"--out", "out.tok", "--files-from", "-", "-0"}, list).status == 0);
  CHECK(documents_in("out.tok") == Texts{"1", "2"});
  CHECK(prepare({"--out", "out.tok", "--files-from", "-", "--null"}, list.substr(0, 15)).status == 0);
  CHECK(documents_in("out.tok") == Texts{"1", "2"});
  CHECK(prepare_error({"--out", "out.tok", "--files-from", "-"}, list) ==
        "prepare: standard input:1: contains a zero byte; if zero bytes end the names, use -0 (--null)\n");
  CHECK(prepare_error({"--out", "out.tok", "--files-from", "-", "-0"}, "a b.txt" + std::string(2, '\0')) ==
        "prepare: standard input:2: is empty, must be a path\n");
  CHECK(prepare_error({"--out", "out.tok", "--files-from", "-"}, std::string(5000, 'a')) ==
        "prepare: standard input:1: is longer than 4095 bytes, the maximum of a path\n");
  CHECK(prepare_error({"--out", "out.tok", "-0", "a b.txt"}).find("--files-from") != std::string::npos);
}

TEST_CASE("prepare reads no device, and replaces no pipe, no socket and nothing that it reads") {
  write("a.txt", "text");
  write("list", "a.txt\n");
  fs::remove("pipe");
  fs::remove("socket");
  REQUIRE(mkfifo("pipe", 0600) == 0);
  REQUIRE(mknod("socket", S_IFSOCK | 0600, 0) == 0);
  for (const char* out : {"pipe", "socket"}) {
    const std::string reason =
        str("prepare: ", out, ": cannot write: is a device, a pipe or a socket, must be a regular file\n");
    CHECK(prepare_error({"--out", out, "a.txt"}) == reason);
    CHECK(prepare_error({"--out", "out.tok", "--eval-out", out, "a.txt"}) == reason);
  }
  CHECK(fs::is_fifo("pipe"));
  CHECK(fs::is_socket("socket"));
  CHECK(prepare_error({"--out", "out.tok", "/dev/zero"}) ==
        "prepare: /dev/zero: is a device or a socket, must be a file or a pipe\n");
  CHECK(
      prepare_error({"--out", "out.tok", "--files-from", "/dev/zero"}).starts_with("prepare: /dev/zero:1: "));
  CHECK(prepare_error({"--out", "list", "--files-from", "list"}) ==
        "prepare: list: is both read as --files-from and written\n");
  CHECK(bytes_of("list") == "a.txt\n");
}

TEST_CASE("prepare may read a file named like an unfinished one and leaves it unchanged") {
  for (const char* name : {"out.tok.unfinished", "out.tok.tmp"}) {
    write(name, "text");
    CHECK(prepare({"--out", "out.tok", name}).status == 0);
    CHECK(documents_in("out.tok") == Texts{"text"});
    CHECK(bytes_of(name) == "text");
    fs::remove(name);
  }
  fs::remove("out.tok");
}

TEST_CASE("prepare leaves nothing behind when a signal ends it") {
  fs::create_directory("interrupted");
  for (const char* signal : {"TERM", "HUP"}) {
    // Its input never ends. SIGINT is not tried: a shell's background jobs ignore it.
    const test::Finished ended = test::run_command(str(
        "cd interrupted; mkfifo pipe; exec 9<>pipe; echo text >&9; @prepare --out out.tok pipe & sleep 0.3; "
        "kill -",
        signal, " $!; wait $!; echo ended $?; rm pipe; ls"));
    CHECK_MESSAGE(ended.output.find("out.tok") == std::string::npos, ended.output);
    CHECK_MESSAGE(ended.output.find("ended 1") != std::string::npos, ended.output);  // 128 and the signal
  }
}

TEST_CASE("a program that cannot write its output fails with a line on standard error") {
  write("a.txt", "text");
  for (const char* command : {"@prepare --help", "@prepare --out said.tok a.txt", "@train --help",
                              "@ckpt --help", "@generate --help"}) {
    const test::Finished ran = test::run_command(std::string(command) + " >/dev/full");
    CHECK_MESSAGE(ran.exit_code == (command[1] == 'c' ? 2 : 1), command);
    CHECK_MESSAGE(ran.output.find(": cannot write the output") != std::string::npos, ran.output);
  }
}

TEST_CASE("--kept lists what runs keep, and removes what none can use") {
  fs::remove_all("kept_list");
  fs::create_directory("kept_list");
  write("kept_list/a.txt", "one text");
  write("kept_list/b.txt", "another");
  const auto keep = [](const std::string& text) {
    const std::string tokens = token_file_of(text, {});
    make_token_file(text, {}, tokens, {});
    return tokens;
  };
  const std::string a = keep("kept_list/a.txt"), b = keep("kept_list/b.txt");
  write("kept_list/a.txt", "two text");
  const Run list = prepare({"--kept", "kept_list"});
  CHECK(list.status == 0);
  CHECK(test::missing_from(list.out, {a + ": ", ", last used 2", "; its text has changed\n", b + ": ",
                                      "2 files of ", "; 1 of ", " unused: --remove-unused removes them\n"}) ==
        "");
  CHECK(fs::exists(a));
  const Run removed = prepare({"--kept", "kept_list", "--remove-unused"});
  CHECK(test::missing_from(removed.out, {a, "; removed\n", "; 1 of ", " removed\n"}) == "");
  CHECK_FALSE(fs::exists(a));
  CHECK(fs::exists(b));
  fs::last_write_time(b, fs::file_time_type::clock::now() - std::chrono::hours(24 * 31 + 1));
  CHECK(prepare({"--kept", "kept_list", "--remove-unused", "--unused-days", "40"}).out.find("removed") ==
        std::string::npos);
  const Run old = prepare({"--kept", "kept_list", "--remove-unused", "--unused-days", "31"});
  CHECK(test::missing_from(old.out, {b, "; not used for 31 days; removed\n"}) == "");
  CHECK_FALSE(fs::exists(b));
  CHECK(prepare_error({"--kept"}) == "prepare: --kept needs the folders of texts or token files\n");
  CHECK(prepare_error({"--kept", "kept_list/none"}).find("is not a folder") != std::string::npos);
  CHECK(prepare_error({"--remove-unused", "kept_list"}).find("--kept") != std::string::npos);
}
