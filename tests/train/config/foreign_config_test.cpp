#include "train/config/foreign_config.h"

#include <fstream>

#include "tests/test.h"
#include "train/config/config.h"

using namespace flatshard;

namespace {

// The settings that axolotl, torchtune and TRL publish with their examples, typed anew.
constexpr char kAxolotl[] = R"(base_model: models/llama
load_in_4bit: true
datasets:
  - path: data/chats.jsonl
    type: chat_template
  - path: data/more.jsonl
val_set_size: 0
output_dir: ./outputs/qlora-out
adapter: qlora
lora_model_dir:
sequence_len: 2048
sample_packing: true
lora_r: 32
lora_alpha: 16
lora_dropout: 0.05
lora_target_linear: true
wandb_project:
gradient_accumulation_steps: 4
micro_batch_size: 2
num_epochs: 4
optimizer: paged_adamw_8bit
lr_scheduler: cosine
learning_rate: 0.0002
bf16: auto
tf32: false
gradient_checkpointing: true
flash_attention: true
warmup_ratio: 0.1
saves_per_epoch: 2
weight_decay: 0.0
special_tokens:
  pad_token: "<|end_of_text|>"
an_unheard_of_key: 3
)";
constexpr char kTorchtune[] = R"(output_dir: runs/tune
tokenizer:
  _component_: torchtune.models.llama3.llama3_tokenizer
  path: models/llama/original/tokenizer.model
  max_seq_len: 512
model:
  _component_: torchtune.models.llama3_2.lora_llama3_2_1b
  lora_attn_modules: ['q_proj', 'output_proj']
  apply_lora_to_mlp: True
  lora_rank: 64
  lora_alpha: 128
checkpointer:
  _component_: torchtune.training.FullModelHFCheckpointer
  checkpoint_dir: models/llama
  output_dir: ${output_dir}
dataset:
  _component_: torchtune.datasets.chat_dataset
  packed: False
  data_files: data/chats.jsonl
batch_size: 4
optimizer:
  _component_: torch.optim.AdamW
  fused: True
  weight_decay: 0.01
  lr: 3e-4
lr_scheduler:
  _component_: torchtune.training.lr_schedulers.get_cosine_schedule_with_warmup
  num_warmup_steps: 100
epochs: 1
max_steps_per_epoch: null
gradient_accumulation_steps: 8
clip_grad_norm: null
dtype: bf16
enable_activation_checkpointing: False
)";
constexpr char kTrl[] = R"({"output_dir": "out", "learning_rate": 2e-05, "per_device_train_batch_size": 4,
 "gradient_accumulation_steps": 2, "max_steps": -1, "num_train_epochs": 2, "lr_scheduler_type": "cosine",
 "warmup_ratio": 0.03, "bf16": false, "max_length": 512, "packing": false, "save_strategy": "epoch",
 "eval_strategy": "steps", "eval_steps": 50, "optim": "adamw_torch_fused", "adam_beta2": 0.95,
 "max_grad_norm": 0.3, "report_to": "none", "seed": 3, "assistant_only_loss": true}
)";

struct Converted {
  std::string text;
  Config config;
};

// Converts a file, and reads the result as train does.
Converted convert(const std::string& name, const std::string& content, int ranks = 1) {
  std::ofstream(name) << content;
  const std::string text = converted_config(name, ranks), file = name + ".toml";
  std::ofstream(file) << text;
  return {text, load_config(file, {}).config};
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("a file of axolotl converts, and every key is mapped or explained") {
  const auto [text, c] = convert("axolotl.yml", kAxolotl, 2);
  CHECK(c.init_from == "models/llama");
  CHECK(std::get<std::vector<std::string>>(c.data.train) ==
        std::vector<std::string>{"data/chats.jsonl", "data/more.jsonl"});
  CHECK(c.data.packing == Packing::best_fit);
  CHECK(c.data.seq_len == 2048);
  CHECK(c.lora.rank == 32);
  CHECK(c.lora.alpha == 16);
  CHECK(name_of(c.optimizer.kind) == "paged_adamw8bit");
  CHECK(c.optimizer.betas == std::array{0.9, 0.999});
  CHECK(c.schedule.kind == ScheduleKind::cosine);
  CHECK(c.train.total_batch_size == 16);
  CHECK(c.train.batch_size_per_device == 2);
  CHECK(c.train.epochs == 4);
  CHECK(c.checkpoint.save_every == "0.125");
  CHECK(c.quant.base.has_value());
  CHECK(c.precision.compute == Precision::bf16);
  CHECK(has(text, ": an_unheard_of_key = 3  ->  is not known here"));
  for (const char* key : {"load_in_4bit", "val_set_size", "lora_model_dir", "wandb_project",
                          "flash_attention", "special_tokens.pad_token", "datasets.type", "tf32"})
    CHECK_MESSAGE(has(text, str(": ", key)), key);
}

TEST_CASE("a recipe of torchtune converts, with references to its own values") {
  const auto [text, c] = convert("tune.yaml", kTorchtune);
  CHECK(c.run.dir == "runs/tune");
  CHECK(c.init_from == "models/llama");
  CHECK(std::get<std::string>(c.data.train) == "data/chats.jsonl");
  CHECK(c.data.packing == Packing::none);
  CHECK(c.data.seq_len == 512);
  CHECK(c.lora.rank == 64);
  CHECK(std::get<std::vector<std::string>>(c.lora.targets) ==
        std::vector<std::string>{"q_proj", "o_proj", "gate_proj", "up_proj", "down_proj"});
  CHECK(c.optimizer.lr == 3e-4);
  CHECK(c.optimizer.weight_decay == 0.01);
  CHECK(c.optimizer.grad_clip == 0);
  CHECK(c.optimizer.no_decay.empty());
  CHECK(c.schedule.warmup_steps == 100);
  CHECK(c.schedule.kind == ScheduleKind::cosine);
  CHECK(c.train.total_batch_size == 32);
  CHECK(c.train.recompute == Recompute::none);
  CHECK(has(text, "clip_grad_norm  ->  is empty"));
}

TEST_CASE("keyword arguments of TRL's SFTConfig convert as JSON, with TRL's defaults") {
  const auto [text, c] = convert("sft.json", kTrl);
  CHECK(c.optimizer.betas == std::array{0.9, 0.95});
  CHECK(c.optimizer.grad_clip == 0.3);
  CHECK(c.train.epochs == 2);
  CHECK(c.train.total_batch_size == 8);
  CHECK(c.train.recompute == Recompute::full);
  CHECK(c.train.eval_every == 0);
  CHECK(c.checkpoint.save_each_epoch);
  CHECK(c.precision.compute == Precision::fp32);
  CHECK(c.data.train_on == TrainOn::assistant);
  CHECK(c.data.packing == Packing::none);
  CHECK(c.run.seed == 3);
  CHECK(has(text, "train.eval_every is left out: there is no data.eval"));
  CHECK(has(text, "max_steps = -1  ->  no limit on steps"));
  const auto [ignored, empty] = convert("sft_empty.json", "{\"output_dir\": \"out\"}");
  CHECK(empty.train.epochs == 3);
  CHECK(empty.train.batch_size_per_device == 8);
  CHECK(empty.data.seq_len == 1024);
  CHECK(empty.data.train_on == TrainOn::all);
}

TEST_CASE("a file that cannot be read is refused with its line") {
  const auto error = [](const std::string& content) {
    std::ofstream("foreign.yml") << content;
    return test::error_of([] { converted_config("foreign.yml", 1); });
  };
  CHECK(error("") == "foreign.yml: has no keys");
  CHECK(has(error("a: 1\nb: [\n"), "foreign.yml:"));
  CHECK(has(error("- a\n- b\n"), "is a list, must have the form key: value"));
  CHECK(has(test::error_of([] { converted_config("nowhere.yml", 1); }), "nowhere.yml"));
}
