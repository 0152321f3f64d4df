#include "tools/ckpt/modelfile.h"

#include "tests/test.h"

using namespace flatshard;

TEST_CASE("a chat template that writes messages of a role alike becomes one of Ollama's") {
  const ChatTemplate chatml(
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
      "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
      "chatml", {});
  const std::optional<std::string> made = ollama_template(chatml);
  REQUIRE(made);
  CHECK(*made ==
        "{{- range .Messages }}{{- if eq .Role \"system\" }}{{ \"<|im_start|>system\\n\" }}{{ .Content }}"
        "{{ \"<|im_end|>\\n\" }}{{- else if eq .Role \"user\" }}{{ \"<|im_start|>user\\n\" }}{{ .Content }}"
        "{{ \"<|im_end|>\\n<|im_start|>assistant\\n\" }}{{- else if eq .Role \"assistant\" }}{{ .Content }}"
        "{{ \"<|im_end|>\\n\" }}{{- end }}{{- end }}");
}

TEST_CASE("a chat template that looks at more than the role of a message does not") {
  const ChatTemplate counting(
      "{% for m in messages %}[{{ loop.index }}:{{ m.role }}]{{ m.content }}{% endfor %}[answer]", "counting",
      {});
  CHECK_FALSE(ollama_template(counting));
  const ChatTemplate strict("{{ raise_exception('no') }}", "strict", {});
  CHECK_FALSE(ollama_template(strict));
}

TEST_CASE("a Modelfile names the file, the template, the ends and the context") {
  Modelfile file{.model = "m.gguf", .context = 4096, .go_template = "{{ .Prompt }}", .stops = {"</s>"}};
  file.has_template = true;
  CHECK(
      file.text() ==
      "FROM ./m.gguf\nTEMPLATE \"\"\"{{ .Prompt }}\"\"\"\nPARAMETER stop \"</s>\"\nPARAMETER num_ctx 4096\n");
  Modelfile adapter;
  adapter.adapter = "a.gguf";
  CHECK(test::missing_from(adapter.text(), {"FROM ./base.gguf", "ADAPTER ./a.gguf"}) == "");
}
