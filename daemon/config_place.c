/* SPDX-License-Identifier: MIT */
/*
 * libcyaml fills our structure and refuses what its schema does not have, but it forgets where a value stood that it
 * accepted, and it tells the place of a syntax error only by the nearest value. So the text is walked once before,
 * event by event, with the parser that libcyaml itself uses, and the place of every key and value is noted. What a
 * configuration has no use for (a second document, aliases, lists, the same key twice) is refused here, with its place.
 */
#include "daemon/config_place.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <yaml.h>

#define CONFIG_DEPTH_MAX 4u

struct walk {
        struct config_places *places;
        char path[CONFIG_PATH_MAX];
        size_t lengths[CONFIG_DEPTH_MAX]; /* of path at each open mapping */
        unsigned int depth;
        unsigned int n_documents;
        struct config_place *pending; /* a key that waits for its value */
};

static struct config_mark walk_mark(const yaml_mark_t *mark) {
        return (struct config_mark){.line = mark->line + 1, .column = mark->column + 1};
}

static int walk_refuse(struct walk *walk, const yaml_mark_t *mark, const char *format, ...)
        __attribute__((format(printf, 3, 4)));
static int walk_refuse(struct walk *walk, const yaml_mark_t *mark, const char *format, ...) {
        va_list args;

        walk->places->refused = walk_mark(mark);
        va_start(args, format);
        vsnprintf(walk->places->text, sizeof(walk->places->text), format, args);
        va_end(args);
        return CONFIG_PLACE_E_REFUSED;
}

static int walk_key(struct walk *walk, const yaml_event_t *event) {
        const char *key = (const char *)event->data.scalar.value;
        size_t base = walk->lengths[walk->depth - 1];
        struct config_place *place;
        char path[CONFIG_PATH_MAX];

        if (strlen(key) != event->data.scalar.length || strchr(key, '.'))
                return walk_refuse(walk, &event->start_mark, "this is no key; allowed: letters and '_'");
        if ((size_t)snprintf(path, sizeof(path), "%.*s%s%s", (int)base, walk->path, base ? "." : "", key) >=
            sizeof(path))
                return walk_refuse(walk, &event->start_mark, "this key is too long; allowed: %u bytes with its section",
                                   CONFIG_PATH_MAX - 1);
        if (config_places_find(walk->places, path))
                return walk_refuse(walk, &event->start_mark, "%s: given twice; allowed: once in a file", path);
        if (walk->places->n_places == CONFIG_PLACES_MAX)
                return walk_refuse(walk, &event->start_mark, "too many keys; allowed: %u in a file", CONFIG_PLACES_MAX);
        place = &walk->places->places[walk->places->n_places++];
        *place = (struct config_place){.key = walk_mark(&event->start_mark), .value = walk_mark(&event->start_mark)};
        memcpy(place->path, path, sizeof(path));
        walk->pending = place;
        return 0;
}

static int walk_mapping(struct walk *walk, const yaml_event_t *event) {
        if (walk->depth == CONFIG_DEPTH_MAX)
                return walk_refuse(walk, &event->start_mark,
                                   "sections are nested too deeply; allowed: key or section.key");
        if (walk->depth && !walk->pending)
                return walk_refuse(walk, &event->start_mark, "a section stands where a key should; allowed: a word");
        if (walk->pending) {
                walk->pending->value = walk_mark(&event->start_mark);
                memcpy(walk->path, walk->pending->path, sizeof(walk->path));
        }
        walk->lengths[walk->depth++] = strlen(walk->path);
        walk->pending = NULL;
        return 0;
}

static int walk_event(struct walk *walk, const yaml_event_t *event) {
        switch (event->type) {
        case YAML_DOCUMENT_START_EVENT:
                if (walk->n_documents++)
                        return walk_refuse(walk, &event->start_mark,
                                           "a second document begins; allowed: one in a file");
                return 0;
        case YAML_ALIAS_EVENT:
                return walk_refuse(walk, &event->start_mark, "an alias; allowed: plain values");
        case YAML_SEQUENCE_START_EVENT:
                return walk_refuse(walk, &event->start_mark, "%s%sa list; allowed: %s",
                                   walk->pending ? walk->pending->path : "", walk->pending ? ": " : "",
                                   walk->depth ? "a single value or a section" : "keys with values");
        case YAML_MAPPING_START_EVENT:
                return walk_mapping(walk, event);
        case YAML_MAPPING_END_EVENT:
                walk->depth--;
                if (walk->depth)
                        walk->path[walk->lengths[walk->depth - 1]] = '\0';
                walk->pending = NULL;
                return 0;
        case YAML_SCALAR_EVENT:
                if (!walk->depth && event->data.scalar.length)
                        return walk_refuse(walk, &event->start_mark, "a single value; allowed: keys with values");
                if (!walk->depth)
                        return 0;
                if (!walk->pending)
                        return walk_key(walk, event);
                if (strlen((const char *)event->data.scalar.value) != event->data.scalar.length)
                        return walk_refuse(walk, &event->start_mark, "%s: a zero byte; allowed: text",
                                           walk->pending->path);
                walk->pending->value = walk_mark(&event->start_mark);
                walk->pending = NULL;
                return 0;
        default:
                return 0;
        }
}

int config_places_read(struct config_places *places, const char *text, size_t length) {
        struct walk walk = {.places = places};
        yaml_parser_t parser;
        bool end = false;
        int r = 0;

        places->n_places = 0;
        if (!yaml_parser_initialize(&parser))
                return -ENOMEM;
        yaml_parser_set_input_string(&parser, (const unsigned char *)text, length);
        while (!r && !end) {
                yaml_event_t event;

                if (!yaml_parser_parse(&parser, &event)) {
                        if (parser.error == YAML_MEMORY_ERROR)
                                r = -ENOMEM;
                        else if (parser.error == YAML_READER_ERROR)
                                /* The reader knows only the byte; its place is where the parser stood. */
                                r = walk_refuse(&walk, &parser.mark, "no YAML: %s; allowed: UTF-8 text",
                                                parser.problem);
                        else
                                r = walk_refuse(&walk, &parser.problem_mark, "no YAML: %s; allowed: keys with values",
                                                parser.problem);
                        break;
                }
                end = event.type == YAML_STREAM_END_EVENT;
                r = walk_event(&walk, &event);
                yaml_event_delete(&event);
        }
        yaml_parser_delete(&parser);
        return r;
}

const struct config_place *config_places_find(const struct config_places *places, const char *path) {
        for (size_t i = 0; i < places->n_places; i++)
                if (strcmp(places->places[i].path, path) == 0)
                        return &places->places[i];
        return NULL;
}
