/* SPDX-License-Identifier: MIT */
#include "gpu/hip/error.h"

#include <stdarg.h>
#include <stdio.h>

#include "gpu/plane.h"

int error_set(int r, char *error, const char *format, ...) {
        va_list arguments;

        if (error) {
                va_start(arguments, format);
                vsnprintf(error, PLANE_TEXT, format, arguments);
                va_end(arguments);
        }
        return r;
}
