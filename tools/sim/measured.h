/* SPDX-License-Identifier: MIT */
#pragma once
/* Results of railmux-perf -J as lines to fit to. */
#include "tools/sim/fit.h"
#include "tools/sim/options.h"

/* Results that no prediction speaks of. */
enum measured_left_out {
        MEASURED_RING,   /* of sendrecv */
        MEASURED_UNEVEN, /* of all_to_all_v, or it is not known */
        MEASURED_LEFT_OUT_N,
};
const char *measured_why(enum measured_left_out why); /* a sentence's end */

/* Takes the results of one file, named [ALGORITHM=]FILE. Which algorithm ran is what its name says, else the result,
 * else options->algorithm, else what `constants` choose. left_out[]: what there was of each kind is added. 0; -EINVAL
 * with a sentence in ret_error; -ENOMEM. */
int measured_load(struct fit *fit, const char *name, const struct options *options,
                  const struct plan_constants *constants, size_t left_out[MEASURED_LEFT_OUT_N],
                  char ret_error[OPTIONS_ERROR_MAX]);
