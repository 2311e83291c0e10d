/* SPDX-License-Identifier: MIT */
#pragma once
/* Results of railmux-perf -J as lines to fit to. */
#include "tools/sim/fit.h"
#include "tools/sim/options.h"

/* Takes the results of one file, named [ALGORITHM=]FILE. Which algorithm ran is what its name says, else the result,
 * else options->algorithm, else what `constants` choose. 0; -EINVAL with a sentence in ret_error; -ENOMEM. */
int measured_load(struct fit *fit, const char *name, const struct options *options,
                  const struct plan_constants *constants, char ret_error[OPTIONS_ERROR_MAX]);
