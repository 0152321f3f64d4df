#include "text/chat/chat_sample.h"

#include <filesystem>
#include <fstream>

#include "runtime/json.h"
#include "tests/byte_tokenizer.h"
#include "tests/test.h"

using namespace flatshard;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

Tokenizer byte_tokenizer(const std::string& folder, bool adds_bos) {
  test::write_byte_tokenizer(folder, adds_bos);
  return Tokenizer(folder);
}

const Tokenizer& plain_tokenizer() {
  static const Tokenizer tokenizer = byte_tokenizer("chat_bytes", false);
  return tokenizer;
}

// The text of the sample, with [ ] around trained tokens.
std::string shown(const ChatSample& sample, const Tokenizer& tokenizer = plain_tokenizer()) {
  std::string text;
  for (size_t t = 0; t < sample.ids.size(); ++t) {
    const bool before = t > 0 && sample.mask[t - 1], now = sample.mask[t];
    if (before != now) text += now ? '[' : ']';
    text += tokenizer.decode(std::vector<int32_t>{sample.ids[t]});
  }
  return sample.mask.empty() || !sample.mask.back() ? text : text + ']';
}

const SpecialTokens kTokens{{"bos_token", "<s>"}, {"eos_token", "</s>"}};

ChatSample sample_of(const std::string& source, const std::string& record, ChatEncoder::Options options = {},
                     const Tokenizer& tokenizer = plain_tokenizer()) {
  const ChatTemplate chat(source, "test", kTokens);
  return ChatEncoder(tokenizer, chat, options).sample(parse_chat_record(record, "f.jsonl:7"), "f.jsonl:7");
}

std::string message(const std::string& role, const std::string& content) {
  return json{{"role", role}, {"content", content}}.dump();
}
std::string messages(const std::vector<std::string>& all) {
  std::string text;
  for (const std::string& one : all) text += (text.empty() ? "" : ",") + one;
  return "{\"messages\": [" + text + "]}";
}
const std::string kTwoTurns = messages(
    {message("user", "a"), message("assistant", "B"), message("user", "c"), message("assistant", "D")});

// ChatML without {% generation %} blocks.
const std::string kChatml =
    "{% for m in messages %}{{ '<|im_start|>' ~ m.role ~ '\\n' ~ m.content ~ '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
const std::string kGenerating =
    "{% for m in messages %}<|im_start|>{% if m.role == 'assistant' %}{% generation %}{{ m.content "
    "}}<|im_end|>"
    "{% endgeneration %}{% else %}{{ m.content }}<|im_end|>{% endif %}{% endfor %}";

}  // namespace

TEST_CASE("the tokens in generation blocks are trained") {
  CHECK(shown(sample_of(kGenerating, kTwoTurns)) ==
        "<|im_start|>a<|im_end|><|im_start|>[B<|im_end|>]<|im_start|>c<|im_end|><|im_start|>[D<|im_end|>]");
  CHECK(shown(sample_of(kGenerating, kTwoTurns, {.train_on = TrainOn::last})) ==
        "<|im_start|>a<|im_end|><|im_start|>B<|im_end|><|im_start|>c<|im_end|><|im_start|>[D<|im_end|>]");
}

TEST_CASE("without generation blocks the text of the assistant and the special token after it are trained") {
  const std::string user = "<|im_start|>user\n", assistant = "<|im_start|>assistant\n";
  CHECK(shown(sample_of(kChatml, kTwoTurns)) == user + "a<|im_end|>\n" + assistant + "[B<|im_end|>]\n" +
                                                    user + "c<|im_end|>\n" + assistant + "[D<|im_end|>]\n");
  CHECK(shown(sample_of(kChatml, kTwoTurns, {.train_on = TrainOn::last})) ==
        user + "a<|im_end|>\n" + assistant + "B<|im_end|>\n" + user + "c<|im_end|>\n" + assistant +
            "[D<|im_end|>]\n");
}

TEST_CASE("template text between the generation prompt and the message is trained") {
  const std::string thinking =
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}<think></think>{% "
      "endif %}"
      "{{ m.content }}<|im_end|>{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{{ '' }}{% "
      "endif %}";
  CHECK(shown(sample_of(thinking, messages({message("user", "a"), message("assistant", "B")}))) ==
        "<|im_start|>user\na<|im_end|><|im_start|>assistant\n[<think></think>B<|im_end|>]");
}

TEST_CASE("if the template hides the text, the mask follows from the tokens of the conversation's prefixes") {
  const std::string counting =
      "{% for m in messages %}<|im_start|>{{ m.role }} {{ m.content | length }}<|im_end|>{% endfor %}"
      "{% if add_generation_prompt %}<|im_start|>assistant{% endif %}";
  CHECK(shown(sample_of(counting, kTwoTurns)) ==
        "<|im_start|>user 1<|im_end|><|im_start|>assistant[ 1<|im_end|>]<|im_start|>user 1<|im_end|>"
        "<|im_start|>assistant[ 1<|im_end|>]");
  CHECK(shown(sample_of(kChatml, messages({message("user", "a"), message("assistant", "")}))) ==
        "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n[<|im_end|>]\n");
  const std::string error = test::error_of([&] {
    sample_of("{{ messages | length }}{% for m in messages %}{{ m.content | length }}{% endfor %}",
              kTwoTurns);
  });
  CHECK(test::missing_from(
            error, {"f.jsonl:7: which tokens the assistant generates in message 2 cannot be told",
                    "no {% generation %} blocks", "shows no text of the message", "differently on its own",
                    "a copy of the template", "train_on = \"all\""}) == "");
}

TEST_CASE("all tokens are trained without asking for the turns, but none of a generation prompt") {
  const ChatEncoder::Options all{.train_on = TrainOn::all};
  const std::string refusing =
      "{% if add_generation_prompt %}{{ raise_exception('no') }}{% endif %}"
      "{{ messages | length }}{% for m in messages %}{{ m.content | length }}{% endfor %}";
  CHECK(shown(sample_of(refusing, kTwoTurns, all)) == "[41111]");
  CHECK(shown(sample_of(kGenerating, kTwoTurns, all)) ==
        "[<|im_start|>a<|im_end|><|im_start|>B<|im_end|><|im_start|>c<|im_end|><|im_start|>D<|im_end|>]");
  CHECK(shown(sample_of(kChatml, R"({"prompt": "2+2=", "completion": "4"})", all)) == "[2+2=4</s>]");
  const std::string pair =
      "{\"prompt\": [" + message("user", "a") + "], \"completion\": [" + message("assistant", "B") + "]}";
  CHECK(shown(sample_of(refusing, pair, all)) == "[211]");
  CHECK_FALSE(sample_of(refusing, pair, all).split_prompt);
}

TEST_CASE("what follows a turn ends it as far as it ends the conversation") {
  const auto of = [](const std::string& turn_end, const std::string& conversation_end) {
    return shown(
        sample_of("{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% if m.role == 'assistant' %}" +
                      turn_end + "{% endif %}{% endfor %}" + conversation_end,
                  kTwoTurns));
  };
  CHECK(of("<|im_end|></s>", "") ==
        "<|user|>a<|assistant|>[B<|im_end|></s>]<|user|>c<|assistant|>[D<|im_end|></s>]");
  CHECK(of("<|im_end|>\n</s>", "") ==
        "<|user|>a<|assistant|>[B<|im_end|>\n</s>]<|user|>c<|assistant|>[D<|im_end|>\n</s>]");
  CHECK(of("<|im_end|>", "{{ '\\n' }}</s>") ==
        "<|user|>a<|assistant|>[B<|im_end|>]<|user|>c<|assistant|>[D<|im_end|>\n</s>]");
  // A turn without an end of its own is ended by the next token of the template.
  CHECK(of("", "") == "<|user|>a<|assistant|>[B<|user|>]c<|assistant|>[D]");
}

TEST_CASE("a turn whose end is elsewhere the conversation's is trained from its own prompt on") {
  // Like templates with channels: a last turn ends otherwise, and only before the others a prompt can be
  // told.
  const std::string channels =
      "{% for m in messages %}<|im_start|>{{ m.role }}{% if m.role == 'assistant' %} final{% endif %}:{{ "
      "m.content }}"
      "{% if loop.last and m.role == 'assistant' and not add_generation_prompt %}</s>{% else %}<|im_end|>{% "
      "endif %}{% endfor %}"
      "{% if add_generation_prompt %}<|im_start|>assistant{% endif %}";
  CHECK(shown(sample_of(channels, kTwoTurns)) ==
        "<|im_start|>user:a<|im_end|><|im_start|>assistant[ final:B<|im_end|>]<|im_start|>user:c<|im_end|>"
        "<|im_start|>assistant[ final:D</s>]");
}

TEST_CASE("of a prompt that begins thoughts a turn without them has a part") {
  const std::string thinking =
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}<think></think>{% "
      "endif %}"
      "{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n"
      "{% endif %}";
  CHECK(shown(sample_of(thinking, kTwoTurns)) ==
        "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n<think>[</think>B<|im_end|>]\n"
        "<|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\n<think>[</think>D<|im_end|>]\n");
}

TEST_CASE("the name of a tool beside what it returns is not of the turn that calls it") {
  const std::string tools =
      "{% for m in messages %}{% if m.tool_calls %}{% set name = m.tool_calls[0].name %}"
      "<|im_start|>assistant to={{ name }}\n{{ m.tool_calls[0].arguments | tojson }}<|im_end|>"
      "{% elif m.role == 'tool' %}<|im_start|>{{ messages[loop.index0 - 1].tool_calls[0].name }}\n{{ "
      "m.content }}"
      "<|im_end|>{% else %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>{% endif %}{% endfor %}"
      "{% if add_generation_prompt %}<|im_start|>assistant{% endif %}";
  const std::string call = R"({"role": "assistant", "content": null,
                               "tool_calls": [{"name": "look", "arguments": {"at": "sky"}}]})";
  CHECK(shown(sample_of(tools, messages({message("user", "a"), call, message("tool", "blue"),
                                         message("assistant", "Blue.")}))) ==
        "<|im_start|>user\na<|im_end|><|im_start|>assistant[ to=look\n{\"at\": \"sky\"}<|im_end|>]"
        "<|im_start|>look\nblue<|im_end|><|im_start|>assistant[\nBlue.<|im_end|>]");
  // Text of the turn that repeats what is before is not the tool's.
  const std::string twice =
      "{% for m in messages %}<|im_start|>{{ m.role }}{% if m.thinking %}({{ m.thinking "
      "}}<|im_end|><|im_start|>"
      "{% endif %}{{ m.content }}<|im_end|>{% endfor %}";
  CHECK(shown(sample_of(twice, messages({message("user", "a"),
                                         R"({"role": "assistant", "thinking": "It is B", "content": "B"})",
                                         message("user", "c")}))) ==
        "<|im_start|>usera<|im_end|><|im_start|>assistant([It is B<|im_end|><|im_start|>B<|im_end|>]"
        "<|im_start|>userc<|im_end|>");
}

TEST_CASE(
    "a turn whose thoughts a template drops later is found by its prompt, one in two places is refused") {
  const std::string dropping =
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}"
      "{% if loop.last %}<think>{{ m.thinking }}</think>{{ m.content }}{% elif m.content %}{{ m.content }}"
      "{% else %}nothing{% endif %}{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}"
      "{% if add_generation_prompt %}<|im_start|>assistant\n<think>{% endif %}";
  const std::string thought = R"({"role": "assistant", "content": "", "thinking": "T"})";
  CHECK(shown(sample_of(dropping, messages({message("user", "a"), thought, message("user", "c"),
                                            message("assistant", "D")}))) ==
        "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n[nothing<|im_end|>]\n"
        "<|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\n<think>[</think>D<|im_end|>]\n");
  const std::string torn =
      "{% for m in messages %}<|im_start|>{{ m.thinking }}|{% endfor %}"
      "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}";
  CHECK(test::missing_from(test::error_of([&] {
                             sample_of(torn,
                                       messages({R"({"role": "assistant", "thinking": "T", "content": "B"})",
                                                 R"({"role": "user", "thinking": "U", "content": "c"})"}));
                           }),
                           {"f.jsonl:7: which tokens the assistant generates in message 1 cannot be told",
                            "in several places", "differently on its own", "train_on = \"all\""}) == "");
}

TEST_CASE("an empty turn of the assistant changes nothing for the other turns") {
  const std::string trimming =
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ (m.content or '') | trim }}<|im_end|>\n{% endfor "
      "%}"
      "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
  for (const std::string& source : {kChatml, trimming, kGenerating})
    for (const std::string empty : {R"("")", R"(" \n ")", "null"})
      for (const int position : {0, 1, 2, 7}) {  // 7: all three
        if (source != trimming && empty != R"("")") continue;
        const auto record = [&](const std::string& of_empty) {
          std::vector<std::string> all;
          for (const int turn : {0, 1, 2}) {
            all.push_back(message("user", "question"));
            const bool is_empty = position == 7 || position == turn;
            all.push_back(is_empty ? R"({"role": "assistant", "content": )" + of_empty + "}"
                                   : message("assistant", "answer"));
          }
          return messages(all);
        };
        CAPTURE(source);
        CAPTURE(empty);
        CAPTURE(position);
        std::string wanted = shown(sample_of(source, record(R"("X")")));
        for (size_t at = wanted.find('X'); at != wanted.npos; at = wanted.find('X')) wanted.erase(at, 1);
        CHECK(shown(sample_of(source, record(empty))) == wanted);
      }
}

TEST_CASE("a hidden turn is found by its prompt, the other turns as without it") {
  const std::string hiding =
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ 'secret' if m.content == 'S' else m.content }}"
      "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
  CHECK(shown(sample_of(hiding, messages({message("user", "a"), message("assistant", "S"),
                                          message("user", "c"), message("assistant", "D")}))) ==
        "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n[secret<|im_end|>]\n<|im_start|>user\nc"
        "<|im_end|>\n<|im_start|>assistant\n[D<|im_end|>]\n");
  const std::string unstable = "{{ messages | length }}" + hiding;
  CHECK(test::error_of([&] {
          sample_of(unstable, messages({message("assistant", "S"), message("assistant", "B")}));
        }).starts_with("f.jsonl:7: which tokens the assistant generates in message 1 cannot be told"));
}

TEST_CASE("a conversation of many turns takes time in proportion to its length, or is refused") {
  constexpr int kTurns = 5000;
  std::vector<std::string> all;
  int64_t trained = 0;
  for (int i = 0; i < kTurns; ++i) {
    const std::string answer = i % 100 == 7 ? "" : "answer " + std::to_string(i);
    all.push_back(message("user", "question " + std::to_string(i)));
    all.push_back(message("assistant", answer));
    trained += std::ssize(answer) + 1;
  }
  const ChatSample sample = sample_of(kChatml, messages(all));
  CHECK_FALSE(sample.rewrites_history);
  CHECK(sample.trained() == trained);
  // Without special tokens the text between messages says where a turn ends, with a line break here.
  const std::string plain = "{% for m in messages %}{{ m.role ~ ': ' ~ m.content ~ '\n' }}{% endfor %}";
  CHECK(sample_of(plain, messages(all)).trained() == trained);
  const std::string counting = "{% for m in messages %}{{ m.role }} {{ m.content | length }}\n{% endfor %}";
  CHECK(test::missing_from(
            test::error_of([&] { sample_of(counting, messages(all)); }),
            {"f.jsonl:7: which tokens the assistant generates in message 2 cannot be told",
             "no {% generation %} blocks", "shows no text", "5000 messages", "train_on = \"all\""}) == "");
}

TEST_CASE("a template that drops text of one of many turns is reported") {
  const std::string forgetting =
      "{% for m in messages %}{{ m.content if loop.last else m.content.split('|')[-1] }}</s>{% endfor %}";
  std::vector<std::string> all;
  for (int i = 0; i < 100; ++i) {
    all.push_back(message("user", "x"));
    all.push_back(message("assistant", i == 37 ? "thoughts|B" : "B"));
  }
  CHECK(sample_of(forgetting, messages(all)).rewrites_history);
  all[2 * 37 + 1] = message("assistant", "B");
  CHECK_FALSE(sample_of(forgetting, messages(all)).rewrites_history);
}

TEST_CASE("message text never becomes a special token") {
  const ChatSample sample = sample_of(
      kChatml, messages({message("user", "<|im_end|></s><|im_start|>"), message("assistant", "<|im_end|>")}));
  CHECK(std::count(sample.ids.begin(), sample.ids.end(), 258) == 2);  // <|im_start|>
  CHECK(std::count(sample.ids.begin(), sample.ids.end(), 259) == 2);  // <|im_end|>
  CHECK(std::count(sample.ids.begin(), sample.ids.end(), 257) == 0);  // </s>
}

TEST_CASE("a role is part of a special token") {
  const std::string zephyr =
      "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{{ eos_token }}{% endfor %}";
  CHECK(sample_of(zephyr, kTwoTurns).ids ==
        std::vector<int32_t>{260, 'a', 257, 261, 'B', 257, 260, 'c', 257, 261, 'D', 257});
}

TEST_CASE("a sample begins with one BOS, added by the template or the tokenizer") {
  const Tokenizer adding = byte_tokenizer("chat_bytes_bos", true);
  const std::string record = messages({message("user", "a"), message("assistant", "B")});
  const ChatSample by_tokenizer = sample_of(kGenerating, record, {}, adding);
  CHECK(shown(by_tokenizer, adding) == "<s><|im_start|>a<|im_end|><|im_start|>[B<|im_end|>]");
  CHECK_FALSE(by_tokenizer.double_bos);
  const ChatSample by_both = sample_of("{{ bos_token }}" + kGenerating, record, {}, adding);
  CHECK(by_both.ids == by_tokenizer.ids);
  CHECK(by_both.mask == by_tokenizer.mask);
  CHECK(by_both.double_bos);
  const ChatSample by_template = sample_of("{{ bos_token }}" + kGenerating, record);
  CHECK(by_template.ids == by_tokenizer.ids);
  CHECK_FALSE(by_template.double_bos);
}

TEST_CASE("a conversation without an assistant trains nothing") {
  CHECK(sample_of(kChatml, messages({message("user", "a")})).trained() == 0);
  CHECK(sample_of(kGenerating, messages({message("user", "a")})).trained() == 0);
}

TEST_CASE("a turn that is trained without its end is reported") {
  const std::string record = messages({message("user", "a"), message("assistant", "B")});
  CHECK_FALSE(sample_of(kGenerating, record).untrained_end);
  CHECK_FALSE(sample_of(kChatml, record).untrained_end);
  CHECK(sample_of("{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}</s>{% endfor %}",
                  record)
            .untrained_end);
}

TEST_CASE("a template that changes earlier turns is reported") {
  const std::string forgetting =
      "{% for m in messages %}{{ m.content if loop.last else m.content.split('|')[-1] }}</s>{% endfor %}";
  const auto rewrites = [&](const std::string& source, const std::string& answer) {
    return sample_of(source, messages({message("assistant", answer), message("user", "x"),
                                       message("assistant", "y")}))
        .rewrites_history;
  };
  CHECK(rewrites(forgetting, "thoughts|B"));
  CHECK_FALSE(rewrites(forgetting, "B"));
  CHECK_FALSE(rewrites(kChatml, "thoughts|B"));
  CHECK_FALSE(rewrites(kChatml + "the end", "B"));
}

TEST_CASE("only the completion of a prompt is trained") {
  CHECK(shown(sample_of(kChatml, R"({"prompt": "2+2=", "completion": "4"})")) == "2+2=[4</s>]");
  CHECK(shown(sample_of(kChatml, R"({"prompt": "<|user|>2+2", "completion": "4</s>"})")) ==
        "<|user|>2+2[4</s>]");
  const std::string record =
      "{\"prompt\": [" + message("user", "a") + "], \"completion\": [" + message("assistant", "B") + "]}";
  CHECK(shown(sample_of(kChatml, record)) ==
        "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n[B<|im_end|>\n]");
  CHECK_FALSE(sample_of(kChatml, record).split_prompt);
  CHECK(sample_of("{{ messages | length }}" + kChatml, record).split_prompt);
  // A generation prompt that the whole does not have: trained is what differs.
  const std::string thinking = kChatml + "{% if add_generation_prompt %}<think>{% endif %}";
  CHECK(shown(sample_of(thinking, record)) ==
        "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n[B<|im_end|>\n]");
}

TEST_CASE("an error about a record names the record and the place in the template") {
  const std::string strict =
      "{% if messages[0].role != 'user' %}\n{{ raise_exception('begin with the user') }}{% endif %}";
  CHECK(test::error_of([&] { sample_of(strict, messages({message("assistant", "B")})); }) ==
        "f.jsonl:7: test:2: begin with the user");
}
