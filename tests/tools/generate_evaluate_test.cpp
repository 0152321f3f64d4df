// The programs `generate` and `evaluate`.

#include <algorithm>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "hub/resident_model.h"
#include "runtime/json.h"
#include "source_dir.h"
#include "tests/process.h"
#include "tests/small_model.h"
#include "tests/test.h"
#include "tests/tools/inference/talking_model.h"
#include "text/data/corpus.h"
#include "text/data/token_file.h"
#include "tools/inference/chat_session.h"

using namespace flatshard;
namespace fs = std::filesystem;

namespace {

constexpr char kQuestions[] =
    R"({"prompt": "One", "completion": "b"})"
    "\n"
    R"({"messages": [{"role": "user", "content": "a, b"}, {"role": "assistant", "content": "c"}]})"
    "\n"
    R"({"prompt": "Two", "completion": "x", "item_name": "y"})"
    "\n";

// A new folder with a model and a file of prompts, in which the commands run.
std::string workshop(const std::string& name) {
  fs::remove_all(name);
  test::write_talking_model(name + "/model");
  test::write_text(name + "/questions.jsonl", kQuestions);
  return "cd " + name + " && ";
}

test::Finished run(const std::string& in, const std::string& command) {
  const test::Finished finished = test::run_command(in + command);
  CAPTURE(command);
  CHECK_MESSAGE(finished.exit_code == 0, finished.output);
  return finished;
}

// A small random model that reads images, in a new folder.
void write_seeing_model(const std::string& folder) {
  fs::remove_all(folder);
  ModelConfig config = test::small_model("smolvlm", 460);
  config.max_positions = 512;
  config.vision->image_size = 64;
  config.vision->patch_size = 8;
  config.vision->scale = 2;
  config.vision->image_token = 421;
  StreamSet streams(Device::cpu());
  const ResidentModel model(resolved(config), DType::f32, streams.add("compute"));
  test::fill_random(model);
  test::write_model_folder(folder, model);
  const fs::path published = kSourceDir + std::string("/tests/golden/image_folders/smolvlm");
  for (const char* name :
       {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "processor_config.json"})
    fs::copy_file(published / name, fs::path(folder) / name);
}

// Returns what the conversation reports as errors.
std::string chat_to(std::ostream& out, const std::string& folder, const std::string& input, int64_t context,
                    const std::string& system, const std::string& chat_template) {
  Generator generator(folder, {.capacity = context});
  const TextCodec codec(folder, generator.config().vocab, chat_template);
  std::istringstream in(input);
  std::ostringstream err;
  run_chat(generator, codec, {.temperature = 0}, 5, system, {in, out, err});
  return err.str();
}

struct Chat {
  std::string out, err;
};

// By the template of the folder if `chat_template` is "".
Chat chat(const std::string& folder, const std::string& input, int64_t context,
          const std::string& system = "", const std::string& chat_template = "chatml") {
  std::ostringstream out;
  const std::string err = chat_to(out, folder, input, context, system, chat_template);
  return {out.str(), err};
}

}  // namespace

TEST_CASE("generate answers a file of prompts, in batches of any size, and replaces no file unasked") {
  const std::string in = workshop("generate_prompts");
  const std::string command =
      "@generate model --device cpu --chat-template chatml --prompts questions.jsonl --max-new-tokens 6 "
      "--out ";
  CHECK(run(in, command + "a.jsonl").output.starts_with("a.jsonl: 3 answers\n"));
  run(in, command + "b.jsonl --batch 1");
  const std::string answers = test::text_of("generate_prompts/a.jsonl");
  CHECK(answers == test::text_of("generate_prompts/b.jsonl"));
  CHECK(answers.starts_with(R"({"prompt":"One","completion":"b","answer":")"));
  CHECK(std::count(answers.begin(), answers.end(), '\n') == 3);
  const test::Finished refused = test::run_command(in + command + "a.jsonl");
  CHECK(refused.exit_code == 1);
  CHECK(refused.output == "generate: a.jsonl: exists already; give another name, or --force to replace it\n");
  run(in, command + "a.jsonl --force");
}

TEST_CASE("a conversation keeps its history until it is reset") {
  const std::string folder = "chat_model";
  test::write_talking_model(folder);
  const Chat once = chat(folder, "Hello\n", 300);
  CHECK(once.out.starts_with("> "));
  CHECK(once.out.ends_with("\n> \n"));
  const std::string answer = once.out.substr(2, once.out.size() - 5);
  const std::string twice = chat(folder, "Hello\n\nHello\n/exit\nignored\n", 300).out;
  CHECK(twice.starts_with("> " + answer + "> > "));
  CHECK(chat(folder, "Hello\n/reset\nHello\n", 300).out == "> " + answer + "> > " + answer + "> \n");
}

TEST_CASE("commands of a conversation are not sent to the model, and two slashes begin a message with one") {
  const std::string folder = "chat_commands";
  test::write_talking_model(folder);
  const std::string answer = chat(folder, "Hello\n", 300).out;
  const Chat unknown = chat(folder, "/rest\n/exit now\nHello\n", 300);
  CHECK(unknown.out == "> > " + answer);
  CHECK(
      unknown.err.starts_with("there is no command \"/rest\"; nothing was sent to the model:\n/image PATH"));
  CHECK(unknown.err.find("there is no command \"/exit now\"") != std::string::npos);
  const Chat help = chat(folder, "/help\nHello\n", 300);
  CHECK(help.out == "> " + std::string(kChatCommands) + answer);
  CHECK(help.err.empty());
  const Chat slash = chat(folder, "//exit\n", 300);
  CHECK(slash.err.empty());
  CHECK(slash.out.size() > 5);
}

TEST_CASE("a system message begins the conversation, and stays when the conversation is forgotten") {
  const std::string folder = "chat_system";
  test::write_talking_model(folder);
  // A context that is too small tells how long the conversation is.
  const std::string bare = chat(folder, "Hello\n", 10).err,
                    given = chat(folder, "Hello\n", 10, "Be brief.").err;
  CHECK(bare.starts_with("the conversation would have "));
  CHECK(bare != given);
  CHECK(chat(folder, "/system Be brief.\nHello\n", 10).err == given);
  CHECK(chat(folder, "/reset\nHello\n", 10, "Be brief.").err == given);
  CHECK(chat(folder, "/system\n", 300, "Be brief.").out == "> Be brief.\n> \n");
  CHECK(chat(folder, "/system\n", 300).out == "> no system message\n> \n");
}

TEST_CASE("a conversation that outgrows its context continues after a message with the remedy") {
  const std::string folder = "chat_overflow";
  test::write_talking_model(folder);
  const Chat full = chat(folder, std::string(80, 'a') + "\nHi\n", 60);
  CHECK(full.err ==
        "the conversation would have 99 tokens, which leaves no space for an answer in the context of 60: "
        "start "
        "a new one with /reset, or give a larger --context\n");
  CHECK(full.out == "> " + chat(folder, "Hi\n", 60).out);
}

TEST_CASE("a conversation survives images that cannot be read, and images whose files are gone") {
  const std::string folder = "chat_images", pictures = kSourceDir + std::string("/tests/golden/images/");
  write_seeing_model(folder);
  const auto talk = [&](const std::string& input) { return chat(folder, input, 400, "", ""); };
  std::string bytes = test::text_of(pictures + "rgb_8.png");
  bytes[bytes.size() - 40] ^= 1;
  test::write_text("chat_images/damaged.png", bytes);
  const Chat plain = talk("first\nhello\n"), damaged = talk("first\n/image chat_images/damaged.png\nhello\n");
  CHECK(plain.err.empty());
  CHECK(damaged.err.starts_with("chat_images/damaged.png: is a damaged PNG ("));
  CHECK(damaged.err.ends_with("; the conversation continues without it\n"));
  const size_t second = plain.out.find("> ", 2);
  CHECK(damaged.out == plain.out.substr(0, second) + "> " + plain.out.substr(second));
  const std::string image = "/image chat_images/a.png\n";
  fs::copy_file(pictures + "rgb_8.png", "chat_images/a.png");
  CHECK(talk(image + "/reset\nfirst\nhello\n").out.ends_with(plain.out));
  const Chat kept = talk("first\n" + image + "hello\nagain\n");
  CHECK(kept.out != talk("first\nhello\nagain\n").out);
  struct Removing : std::stringbuf {  // the file, as soon as the image is shown
    std::streamsize xsputn(const char* text, std::streamsize count) override {
      if (std::string_view(text, static_cast<size_t>(count)).starts_with("shown"))
        fs::remove("chat_images/a.png");
      return std::stringbuf::xsputn(text, count);
    }
  } buffer;
  std::ostream out(&buffer);
  CHECK(chat_to(out, folder, "first\n" + image + "hello\nagain\n", 400, "", "").empty());
  CHECK(!fs::exists("chat_images/a.png"));
  CHECK(buffer.str() == kept.out);
}

TEST_CASE("a message that the chat template rejects is reported, and the conversation continues") {
  const std::string folder = "chat_rejected";
  test::write_talking_model(folder);
  test::write_text("chat_rejected/strict.jinja",
                   "{% for m in messages %}{% if m.content == 'no' %}{{ raise_exception('not so') }}"
                   "{% endif %}{{ m.content }}{% endfor %}");
  fs::copy_file("chat_rejected/strict.jinja", "chat_rejected/chat_template.jinja");
  const Chat plain = chat(folder, "Hi\nHo\n", 300, "", ""),
             rejected = chat(folder, "Hi\nno\nHo\n", 300, "", "");
  CHECK(test::missing_from(rejected.err, {"not so", "; the conversation continues as before\n"}) == "");
  const size_t second = plain.out.find("> ", 2);
  CHECK(rejected.out == plain.out.substr(0, second) + "> " + plain.out.substr(second));
}

TEST_CASE("generate --chat holds a conversation, and needs a chat template") {
  const std::string in = workshop("generate_chat");
  const std::string output = run(in,
                                 "printf 'Hi\\n/exit\\n' | @generate model --device cpu --chat "
                                 "--chat-template chatml --max-new-tokens 3")
                                 .output;
  CHECK(output.starts_with("> "));
  const test::Finished refused = test::run_command(in + "@generate model --device cpu --chat </dev/null");
  CHECK(refused.exit_code == 1);
  CHECK(refused.output ==
        "generate: model: has no chat template, which conversations need; name one with --chat-template, or "
        "for a run in data.chat_template\n");
}

TEST_CASE("Ctrl-C ends an answer, and the conversation continues") {
  const std::string folder = "chat_interrupted";
  test::write_talking_model(folder);
  Generator generator(folder, {.capacity = 300});
  const TextCodec codec(folder, test::kTalkingVocab, "chatml");
  // Raises SIGINT with the first text of every answer.
  struct Interrupting : std::stringbuf {
    std::streamsize xsputn(const char* text, std::streamsize count) override {
      if (count > 0 && std::string_view(text, static_cast<size_t>(count)) != "> ") std::raise(SIGINT);
      return std::stringbuf::xsputn(text, count);
    }
  } buffer;
  std::ostream out(&buffer);
  std::istringstream in("Hello\nHello\n");
  std::ostringstream err;
  run_chat(generator, codec, {.temperature = 0}, 5, "", {in, out, err});
  const std::string once = chat(folder, "Hello\n", 300).out, text = buffer.str();
  CHECK(text.starts_with(once.substr(0, 3) + "\n> "));
  CHECK(std::count(text.begin(), text.end(), '>') >= 3);
  CHECK(text.ends_with("\n> \n"));
}

TEST_CASE("Ctrl-C at the prompt of generate --chat ends the program on a line of its own") {
  const std::string in = workshop("chat_ended");
  const std::string ended = run(in,
                                "mkfifo input && { @generate model --device cpu --chat --chat-template "
                                "chatml <input >output & } && "
                                "exec 3>input && until grep -qs '>' output; do sleep 0.02; done && "
                                "while kill -INT $! 2>/dev/null; do sleep 0.05; done; wait $! && cat output")
                                .output;
  CHECK(ended == "> \n");
}

TEST_CASE("generate --image shows pictures with the prompt, as a record of --prompts does") {
  const std::string folder = "generate_image";
  write_seeing_model(folder + "/model");
  const std::string picture = kSourceDir + std::string("/tests/golden/images/rgb.jpeg");
  test::write_text(
      folder + "/a.jsonl",
      R"({"images": [")" + picture +
          R"("], "messages": [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What?"}]}]})"
          "\n");
  const std::string in = "cd " + folder + " && ",
                    options = " --device cpu --temperature 0 --max-new-tokens 9 ";
  run(in, "@generate model --prompts a.jsonl --out b.jsonl" + options);
  const auto answer = nlohmann::json::parse(test::text_of(folder + "/b.jsonl"))["answer"].get<std::string>();
  const std::string shown =
      run(in, "@generate model --prompt What? --image " + picture + options + "2>/dev/null").output;
  CHECK(shown == answer + "\n");
  CHECK(shown !=
        run(in, "@generate model --prompt What? --image " + picture + "," + picture + options + "2>/dev/null")
            .output);
  const test::Finished missing =
      test::run_command(in + "@generate model --prompt What? --image no.png" + options);
  CHECK(missing.exit_code == 1);
  CHECK(missing.output.starts_with("generate: no.png: "));
  test::write_talking_model(folder + "/text");
  CHECK(test::run_command(in + "@generate text --prompt What? --image " + picture + options).output ==
        "generate: --image: the model reads no images\n");
}

TEST_CASE("evaluate loss has the same result for text and its tokens, on any number of ranks") {
  const std::string in = workshop("evaluate_loss");
  std::string text;
  for (int i = 0; i < 60; ++i) text += str("line ", i * i, i % 3 == 0 ? "\n" : " ");
  test::write_text("evaluate_loss/text.txt", text);
  run(in, "@prepare --tokenizer model --out text.tok text.txt");
  const std::string command = "@evaluate loss model text.txt --device cpu --seq-len 50";
  const std::string found = run(in, command).output;
  CHECK(found.starts_with("loss "));
  CHECK(found.ends_with(
      str("; 1 document, ", TokenFile("evaluate_loss/text.tok").size() - 1, " targets, windows of 50\n")));
  CHECK(run(in, "@evaluate loss model text.tok --device cpu --seq-len 50").output == found);
  if (!test::no_ranks_because().empty()) return;
  CHECK(run(in, test::launcher(2) + " " + command).output == found);
}

TEST_CASE("evaluate loss reads the chosen columns of a table") {
  const std::string table = kSourceDir + std::string("/tests/golden/tables/pictures.parquet");
  if (const std::string why = test::error_of([&] { check_records(table, {"caption"}); }); !why.empty())
    return test::skip("this build reads no tables");
  const std::string in = workshop("evaluate_table");
  test::write_text("evaluate_table/caption.jsonl",
                   "{\"caption\": \"A cat.\"}\n{\"caption\": \"A dog.\"}\n{\"caption\": \"Nothing.\"}\n");
  const std::string options = " --device cpu --seq-len 50 --text-field caption --columns caption";
  const std::string found = run(in, "@evaluate loss model caption.jsonl" + options).output;
  CHECK(found.starts_with("loss "));
  CHECK(run(in, "@evaluate loss model " + table + options).output == found);
}

TEST_CASE("evaluate logprobs writes what loss adds up, in the order of the file, on any number of ranks") {
  const std::string in = workshop("evaluate_logprobs");
  run(in, "@prepare --tokenizer model --chat-template chatml --out chats.tok questions.jsonl");
  const std::string options = " chats.tok --device cpu --seq-len 60 ";
  run(in, "@evaluate logprobs model --out a.jsonl" + options);
  const TokenFile file("evaluate_logprobs/chats.tok");
  std::ifstream lines("evaluate_logprobs/a.jsonl");
  int64_t documents = 0, targets = 0;
  double total = 0;
  file.each_document([&](int64_t begin, int64_t length) {
    std::vector<int32_t> tokens(static_cast<size_t>(length));
    std::vector<uint8_t> trained(tokens.size());
    file.read(begin, tokens);
    file.read_mask(begin, trained);
    std::string text;
    std::getline(lines, text);
    const auto line = nlohmann::json::parse(text);
    CHECK(line["tokens"] == tokens);
    CHECK(line["trained"] == trained);
    REQUIRE(line["logprobs"].size() == tokens.size());
    CHECK(line["logprobs"][0].is_null());
    double sum = 0;
    int64_t count = 0;
    for (size_t i = 1; i < tokens.size(); ++i) {
      CHECK(line["logprobs"][i].get<double>() < 0);
      if (!trained[i]) continue;
      sum += line["logprobs"][i].get<double>();
      ++count;
    }
    CHECK(line["sum"].get<double>() == doctest::Approx(sum));
    CHECK(line["targets"] == count);
    total += sum;
    targets += count;
    ++documents;
  });
  CHECK(documents == 3);
  const std::string loss = run(in, "@evaluate loss model" + options).output;
  CHECK(std::stod(test::after(loss, "loss ")) ==
        doctest::Approx(-total / static_cast<double>(targets)).epsilon(1e-6));
  const test::Finished refused =
      test::run_command(in + "@evaluate logprobs model --out b.jsonl chats.tok --seq-len 3");
  CHECK(test::missing_from(refused.output, {"chats.tok: document 1: has ", "tokens: set --seq-len to "}) ==
        "");
  CHECK(test::run_command(in + "@evaluate logprobs model --out a.jsonl" + options).output ==
        "evaluate: a.jsonl: exists already; give another name, or --force to replace it\n");
  if (!test::no_ranks_because().empty()) return;
  run(in, test::launcher(2) + " @evaluate logprobs model --out b.jsonl" + options);
  CHECK(test::text_of("evaluate_logprobs/b.jsonl") == test::text_of("evaluate_logprobs/a.jsonl"));
}

TEST_CASE("evaluate preference compares the answers of pairs as evaluate logprobs has them") {
  const std::string in = workshop("evaluate_preference");
  const std::vector<std::array<std::string, 3>> pairs{
      {"One", "b", "cc"}, {"Two", "x, y, z", "a"}, {"x", "c", "b"}, {"a, b", "dd", "e"}, {"d", "x", "yyy"}};
  std::string preferences, completions;
  for (const auto& [prompt, chosen, rejected] : pairs) {
    const std::string begin = str(R"({"prompt": ")", prompt, "\", ");
    preferences += str(begin, R"("chosen": ")", chosen, R"(", "rejected": ")", rejected, "\"}\n");
    for (const std::string& answer : {chosen, rejected})
      completions += str(begin, R"("completion": ")", answer, "\"}\n");
  }
  test::write_text("evaluate_preference/pairs.jsonl", preferences);
  test::write_text("evaluate_preference/completions.jsonl", completions);
  const std::string options = " --device cpu --seq-len 60 ";
  run(in, "@evaluate logprobs model completions.jsonl --chat-template chatml --out logprobs.jsonl" + options);
  std::ifstream file("evaluate_preference/logprobs.jsonl");
  std::vector<nlohmann::json> answers;
  for (std::string line; std::getline(file, line);) answers.push_back(nlohmann::json::parse(line));
  REQUIRE(answers.size() == 2 * pairs.size());
  const auto sum = [&](size_t i) { return answers[i]["sum"].get<double>(); };
  const auto mean = [&](size_t i) { return sum(i) / answers[i]["targets"].get<double>(); };
  double right = 0, right_per_token = 0, margin = 0;
  for (size_t i = 0; i < answers.size(); i += 2) {
    right += sum(i) > sum(i + 1) ? 1 : 0;
    right_per_token += mean(i) > mean(i + 1) ? 1 : 0;
    margin += sum(i) - sum(i + 1);
  }
  const auto count = static_cast<double>(pairs.size());
  const std::string output =
      run(in, "@evaluate preference model pairs.jsonl --chat-template chatml --out sums.jsonl" + options)
          .output;
  CAPTURE(output);
  CHECK(std::stod(test::after(output, "accuracy ")) == doctest::Approx(right / count));
  CHECK(std::stod(test::after(output, "per token ")) == doctest::Approx(right_per_token / count));
  CHECK(std::stod(test::after(output, "margin ")) == doctest::Approx(margin / count).epsilon(1e-3));
  CHECK(output.find("; 5 pairs\n") != std::string::npos);
  std::ifstream sums("evaluate_preference/sums.jsonl");
  size_t next = 0;
  for (std::string line; std::getline(sums, line);)
    for (const char* name : {"chosen", "rejected"})
      CHECK(nlohmann::json::parse(line)[name]["sum"].get<double>() == doctest::Approx(sum(next++)));
  CHECK(next == answers.size());
  run(in, "@prepare --tokenizer model --chat-template chatml --out completions.tok completions.jsonl");
  const test::Finished pairs_of_tokens = test::run_command(in + "@evaluate preference model completions.tok"),
                       template_of_tokens = test::run_command(
                           in + "@evaluate loss model completions.tok --chat-template chatml");
  CHECK(test::missing_from(pairs_of_tokens.output,
                           {"completions.tok: is a token file, which has no pairs"}) == "");
  CHECK(test::missing_from(template_of_tokens.output,
                           {"completions.tok: has tokens already, so --chat-template changes nothing"}) ==
        "");
  // Against itself, no margin is left.
  const std::string same =
      run(in, "@evaluate preference model pairs.jsonl --chat-template chatml --reference model" + options)
          .output;
  CHECK(same == "accuracy 0, per token 0; mean margin 0; 5 pairs\n");
  if (!test::no_ranks_because().empty()) return;
  CHECK(
      run(in, test::launcher(2) + " @evaluate preference model pairs.jsonl --chat-template chatml" + options)
          .output == output);
}

TEST_CASE("evaluate similarity writes the same table on any number of ranks") {
  const std::string in = workshop("evaluate_similarity");
  const std::string command =
      "@evaluate similarity model questions.jsonl --device cpu --chat-template chatml --max-new-tokens 8 "
      "--out ";
  const std::string output = run(in, command + "1.csv").output;
  CHECK(output.starts_with("1.csv: 3 answers\n0 of 3 answers are their references; others:\n  "));
  CHECK(output.find("\n==> Average semantic similarity score: ") != output.npos);
  CHECK(output.ends_with("; exact match: 0 of 3\n"));
  const std::string table = test::text_of("evaluate_similarity/1.csv");
  CHECK(table.starts_with("data_id,item_name,user_question,"));
  CHECK(test::run_command(in + command + "1.csv").exit_code == 1);
  if (!test::no_ranks_because().empty()) return;
  for (const int ranks : {2, 4}) {
    run(in, test::launcher(ranks) + " " + command + str(ranks, ".csv"));
    CHECK(test::text_of(str("evaluate_similarity/", ranks, ".csv")) == table);
  }
}

TEST_CASE("ranks that share the weights generate the tokens of one rank") {
  if (const std::string why = test::no_ranks_because(); !why.empty()) return test::skip(why);
  const std::string in = workshop("generate_sharded");
  for (const char* dtype : {"fp32", "bf16"}) {
    const std::string options = str(" --dtype ", dtype, " --seed 3 --max-new-tokens 7 ");
    const std::string prompt = "@generate model --device cpu --prompt 'Hello, you'" + options + "2>/dev/null";
    const std::string prompts =
        "@generate model --device cpu --chat-template chatml --prompts questions.jsonl" + options +
        "--force --out ";
    const std::string one = run(in, prompt).output;
    run(in, prompts + "1.jsonl");
    for (const int ranks : {2, 3}) {
      CHECK(run(in, test::launcher(ranks) + " " + prompt).output == one);
      run(in, test::launcher(ranks) + " " + prompts + "n.jsonl");
      CHECK(test::text_of("generate_sharded/n.jsonl") == test::text_of("generate_sharded/1.jsonl"));
    }
  }
}

TEST_CASE("generate and evaluate give the same results with an adapter as with the merged model") {
  for (const char* bases : {"folders/", "quantized_folders/"}) {
    CAPTURE(bases);
    const std::string in = workshop("generate_adapter"), golden = str(kSourceDir, "/tests/golden/"),
                      base = golden + bases + "mistral",
                      adapter = " --adapter " + golden + "adapters/mistral";
    run(in, "@ckpt merge-adapter " + base + " " + golden + "adapters/mistral --out merged --dtype f32");
    const std::string generate = "@generate ",
                      prompt =
                          " --device cpu --temperature 0 --max-new-tokens 12 --prompt '1 2 3' 2>/dev/null";
    const std::string adapted = run(in, generate + base + adapter + prompt).output;
    CHECK(adapted == run(in, generate + "merged" + prompt).output);
    CHECK(adapted != run(in, generate + base + prompt).output);

    test::write_text("generate_adapter/numbers.txt", "3 1 4 1 5 9 2 6 5 3 5 8 9 7 9 3 2 3 8 4 6 26 43 38\n");
    const auto loss_of = [&](const std::string& model) {
      const std::string found =
          run(in, "@evaluate loss " + model + " numbers.txt --device cpu --seq-len 8").output;
      CHECK(found.starts_with("loss "));
      return std::stod(found.substr(5));
    };
    CHECK(loss_of(base + adapter) == doctest::Approx(loss_of("merged")).epsilon(1e-6));
    CHECK(std::abs(loss_of(base + adapter) - loss_of(base)) > 1e-3);
    if (!test::no_ranks_because().empty()) continue;
    CHECK(run(in, test::launcher(2) + " " + generate + base + adapter + prompt).output == adapted);
  }
}
