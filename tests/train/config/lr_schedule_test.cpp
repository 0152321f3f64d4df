#include "train/config/lr_schedule.h"

#include <vector>

#include "tests/test.h"

using namespace flatshard;

namespace {

struct Logged {
  int64_t step;
  double rate;
};

void check_bits(int64_t total, double peak, int64_t warmup, const std::vector<Logged>& log) {
  const ScheduleConfig cosine{.kind = ScheduleKind::cosine, .warmup_ratio = 0.03};
  CHECK(warmup_steps(cosine, total) == warmup);
  for (const Logged& entry : log) {
    CAPTURE(entry.step);
    CHECK(learning_rate(cosine, peak, total, entry.step) == entry.rate);
  }
}

}  // namespace

TEST_CASE("the cosine schedule reproduces published training logs to the last bit") {
  check_bits(63, 2e-5, 2,
             {{4, 1.9946998756145894e-05},
              {24, 1.423914390709861e-05},
              {44, 4.417562779731355e-06},
              {8, 1.9526353808033827e-05},
              {28, 1.2296877421317958e-05},
              {48, 2.8384781168560693e-06},
              {12, 1.8702852410301556e-05},
              {32, 1.0257479136549889e-05},
              {52, 1.5622444017681438e-06},
              {16, 1.7511319308705198e-05},
              {36, 8.207192411892645e-06},
              {56, 6.428318095950648e-07},
              {20, 1.6002142805483686e-05},
              {40, 6.232721063648148e-06},
              {60, 1.1912103908922945e-07}});
  check_bits(90, 1.7e-5, 3,
             {{5, 1.6977842467902572e-05},
              {35, 1.1929198876913373e-05},
              {65, 3.2346889296663546e-06},
              {10, 1.672989499512179e-05},
              {40, 1.0476823372381639e-05},
              {70, 2.12202651167058e-06},
              {15, 1.6214391067203134e-05},
              {45, 8.960180722976049e-06},
              {75, 1.2167140025754931e-06},
              {20, 1.544808987775058e-05},
              {50, 7.4285774546275405e-06},
              {80, 5.48183394632392e-07},
              {25, 1.445590411762341e-05},
              {55, 5.931806467658631e-06},
              {85, 1.3816882657797725e-07},
              {30, 1.3270090055580252e-05},
              {60, 4.5185282540517844e-06},
              {90, 0.0}});
  check_bits(177, 1e-5, 6,
             {{9, 9.992407582166582e-06},
              {45, 8.770533048884483e-06},
              {81, 5.958553159618693e-06},
              {117, 2.7423332084455543e-06},
              {18, 9.878981913137178e-06},
              {54, 8.178618741049841e-06},
              {90, 5.137771711840811e-06},
              {27, 9.632470336074009e-06},
              {63, 7.500000000000001e-06},
              {99, 4.313232210907959e-06},
              {36, 9.259597044191635e-06},
              {72, 6.753187775963773e-06},
              {108, 3.507425944991529e-06}});
}

TEST_CASE("the linear schedule falls to zero after its warm-up") {
  const ScheduleConfig linear{.kind = ScheduleKind::linear, .warmup_ratio = 0.1};
  for (const auto& [step, rate] : {Logged{0, 0}, {1, 0.1}, {10, 1}, {55, 0.5}, {99, 1.0 / 90}, {100, 0}})
    CHECK(learning_rate(linear, 1.0, 100, step) == doctest::Approx(rate).epsilon(1e-15));
}

TEST_CASE("the floor of a schedule is a factor of the peak, also in the warm-up's end") {
  const ScheduleConfig cosine{.kind = ScheduleKind::cosine, .warmup_steps = 10, .min_lr_factor = 0.1};
  for (const auto& [step, rate] : {Logged{5, 0.5}, {10, 1}, {55, 0.55}, {77, 0.237403733293}, {100, 0.1}})
    CHECK(learning_rate(cosine, 1.0, 100, step) == doctest::Approx(rate).epsilon(1e-11));
}

TEST_CASE("warmup-stable-decay holds the peak and falls in the last part of the run") {
  const ScheduleConfig wsd{.kind = ScheduleKind::wsd, .warmup_steps = 10, .decay_ratio = 0.2};
  for (const auto& [step, rate] : {Logged{5, 0.5}, {10, 1}, {80, 1}, {90, 0.5}, {100, 0}})
    CHECK(learning_rate(wsd, 1.0, 100, step) == doctest::Approx(rate));
}

TEST_CASE("a constant schedule may start at its peak") {
  CHECK(learning_rate({.kind = ScheduleKind::constant, .warmup_steps = 4, .warmup_start = WarmupStart::one},
                      3.0, 10, 0) == 3.0);
  CHECK(learning_rate({.kind = ScheduleKind::constant, .warmup_steps = 4}, 3.0, 10, 1) == 0.75);
  CHECK(learning_rate({.kind = ScheduleKind::constant}, 3.0, 10, 0) == 3.0);
}

TEST_CASE("a schedule with a start step is the one of the remaining steps") {
  for (const ScheduleKind kind :
       {ScheduleKind::linear, ScheduleKind::constant, ScheduleKind::cosine, ScheduleKind::wsd}) {
    CAPTURE(kind);
    const ScheduleConfig whole{.kind = kind, .warmup_ratio = 0.1, .min_lr_factor = 0.1};
    ScheduleConfig later = whole;
    later.start_step = 40;
    for (int64_t step = 0; step < 60; ++step)
      CHECK(learning_rate(later, 2.0, 100, 40 + step) == learning_rate(whole, 2.0, 60, step));
  }
  CHECK(test::error_of([] { check_schedule({.start_step = 100}, 100); }) ==
        "schedule.start_step = 100 is not within the run of 100 steps: lower it, or raise train.steps");
}
