package main

import (
	"flag"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-logr/logr"
	"github.com/go-logr/zapr"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// logLevelPath is the path, next to the metrics, at which the log level is read and changed.
const logLevelPath = "/log-level"

// logging are the flags of the log. Their names are those of the flags of controller-runtime.
type logging struct {
	development, sampling bool
	encoding              string
	timeEncoder           zapcore.TimeEncoder
	// level and stacktraces are nil unless set: development has other defaults.
	level, stacktraces *zapcore.Level
}

func (l *logging) bind(flags *flag.FlagSet) {
	flags.BoolVar(&l.development, "zap-devel", false, "Log for development: by default, --zap-encoder=console, --zap-log-level=debug, a stack trace for each warning, and no sampling.")
	flags.BoolVar(&l.sampling, "zap-sampling", true, "Of entries with the same level and message, log the first 100 each second, and then one of 100. Without effect with --zap-devel.")
	flags.Func("zap-encoder", "Format of the log: json or console. (default json)", func(text string) error {
		l.encoding = strings.ToLower(text)
		if l.encoding != "json" && l.encoding != "console" {
			return fmt.Errorf("%q is no format: set json or console", text)
		}
		return nil
	})
	flags.Func("zap-log-level", "Least severe `level` to log: error, info, debug, or a positive verbosity, where 1 is debug. While the manager runs, it can be changed at "+logLevelPath+" of the metrics endpoint. (default info)", func(text string) (err error) {
		l.level, err = parseLevel(text)
		return err
	})
	flags.Func("zap-stacktrace-level", "Least severe `level` that is logged with a stack trace: panic, error or info. (default error)", func(text string) (err error) {
		l.stacktraces, err = parseLevel(text)
		return err
	})
	l.timeEncoder = zapcore.RFC3339TimeEncoder
	flags.Func("zap-time-encoding", "Format of the time: rfc3339, rfc3339nano, iso8601, epoch, millis or nanos. (default rfc3339)", func(text string) error {
		encoder, ok := timeEncoders[strings.ToLower(text)]
		if !ok {
			return fmt.Errorf("%q is no format of the time: set rfc3339, rfc3339nano, iso8601, epoch, millis or nanos", text)
		}
		l.timeEncoder = encoder
		return nil
	})
}

var timeEncoders = map[string]zapcore.TimeEncoder{
	"rfc3339": zapcore.RFC3339TimeEncoder, "rfc3339nano": zapcore.RFC3339NanoTimeEncoder, "iso8601": zapcore.ISO8601TimeEncoder,
	"epoch": zapcore.EpochTimeEncoder, "millis": zapcore.EpochMillisTimeEncoder, "nanos": zapcore.EpochNanosTimeEncoder,
}

// parseLevel parses a level by name, or a verbosity of logr, which is a negative level of zap.
func parseLevel(text string) (*zapcore.Level, error) {
	if verbosity, err := strconv.ParseInt(text, 10, 8); err == nil && verbosity > 0 {
		level := zapcore.Level(-verbosity)
		return &level, nil
	}
	level, err := zapcore.ParseLevel(text)
	if err != nil || text == "" {
		return nil, fmt.Errorf("%q is no level: set panic, error, info or debug, or a verbosity from 1 to 127", text)
	}
	return &level, nil
}

// build returns the logger, and its level, which can be changed at any time and is an HTTP handler.
func (l *logging) build() (logr.Logger, zap.AtomicLevel, error) {
	config := zap.NewProductionConfig()
	if l.development {
		config = zap.NewDevelopmentConfig()
	}
	config.EncoderConfig.EncodeTime = l.timeEncoder
	config.DisableCaller = true // names pkg/phases for most entries: the logger's name tells more
	if !l.sampling {
		config.Sampling = nil
	}
	if l.encoding != "" {
		config.Encoding = l.encoding
	}
	if l.level != nil {
		config.Level.SetLevel(*l.level)
	}
	var options []zap.Option
	if l.stacktraces != nil {
		options = append(options, zap.AddStacktrace(*l.stacktraces))
	}
	logger, err := config.Build(options...)
	if err != nil {
		return logr.Logger{}, config.Level, fmt.Errorf("building the logger (--zap-encoder): %w", err)
	}
	return zapr.NewLogger(logger), config.Level, nil
}
