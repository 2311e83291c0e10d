/* SPDX-License-Identifier: MIT */
#pragma once
/* Answers as text for people and as JSON for programs. */
#include "tools/ctl/answer.h"
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#define SHOW_JSON_VERSION 1

struct show_options {
        bool ranks; /* comms: a row per rank */
};

/* 0 or -ENOMEM. */
int show_status(const struct answer *answer, const struct show_options *options, FILE *out);
int show_tenants(const struct answer *answer, const struct show_options *options, FILE *out);
int show_sessions(const struct answer *answer, const struct show_options *options, FILE *out);
int show_comms(const struct answer *answer, const struct show_options *options, FILE *out);
int show_gpus(const struct answer *answer, const struct show_options *options, FILE *out);
int show_peers(const struct answer *answer, const struct show_options *options, FILE *out);
int show_rails(const struct answer *answer, const struct show_options *options, FILE *out);
int show_routes(const struct answer *answer, const struct show_options *options, FILE *out);
/* Prometheus' text format. */
int show_metrics(const struct answer *answer, const struct show_options *options, FILE *out);
int show_drain(const struct answer *answer, const struct show_options *options, FILE *out);
/* Needs answer->graph and ->rails; -EBADMSG without. */
int show_topology(const struct answer *answer, const struct show_options *options, FILE *out);
int show_reload(const struct answer *answer, const struct show_options *options, FILE *out);
int show_version(const struct answer *answer, const struct show_options *options, FILE *out);

/* The member of the document that the command is named after; NULL without memory. */
json_t *json_status(const struct answer *answer);
json_t *json_tenants(const struct answer *answer);
json_t *json_sessions(const struct answer *answer);
json_t *json_comms(const struct answer *answer);
json_t *json_gpus(const struct answer *answer);
json_t *json_peers(const struct answer *answer);
json_t *json_rails(const struct answer *answer);
json_t *json_routes(const struct answer *answer);
json_t *json_metrics(const struct answer *answer);
json_t *json_drain(const struct answer *answer);
json_t *json_topology(const struct answer *answer);
json_t *json_reload(const struct answer *answer);
json_t *json_version(const struct answer *answer);
/* For others of these. */
json_t *json_carried(const Railmux__Control__Carried *carried);
