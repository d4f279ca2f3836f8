// Lockctl shows the locks in a Redis, and takes one away, for the person with the pager.
//
//	go run ./examples/lockctl -redis localhost:6379 -prefix shop: ls
//	go run ./examples/lockctl -demo watch
package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/internal/plain"
)

const usage = `Lockctl shows the locks in a Redis, and takes one away.

  lockctl [flags] ls [BEGINNING]   the locks, or those whose key begins so
  lockctl [flags] show KEY         who holds it, since when, how many processes wait
  lockctl [flags] watch [BEGINNING]
  lockctl [flags] force KEY        takes it away from whoever holds it

KEY is without the prefix, written as ls writes it: \n is a newline, \\ a backslash. WAIT counts processes that wait, the
holder's not among them: who waits in there is on its own page of locks.
The exit code is 0 if it was done, 1 if it failed, 2 if it was not understood, 3 if KEY is free.

`

const (
	failed        = 1
	notUnderstood = 2
	notHeld       = 3
)

var errNotHeld = errors.New("nobody holds it")

// errUsage has been explained already.
var errUsage = errors.New("usage")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	redis.SetLogger(silent{})
	switch err := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr); {
	case errors.Is(err, errUsage):
		os.Exit(notUnderstood)
	case errors.Is(err, errNotHeld):
		fmt.Fprintln(os.Stderr, "lockctl:", err)
		os.Exit(notHeld)
	case err != nil:
		fmt.Fprintln(os.Stderr, "lockctl:", err)
		os.Exit(failed)
	}
}

// silent is for what go-redis logs: what fails is told once, by whoever has asked.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// command is what the person asks for, and where the answer goes.
type command struct {
	*store
	json  bool
	yes   bool
	every time.Duration
	in    io.Reader
	out   io.Writer
}

func run(ctx context.Context, args []string, in io.Reader, out, problems io.Writer) error {
	c := command{in: in, out: out}
	flags := flag.NewFlagSet("lockctl", flag.ContinueOnError)
	flags.SetOutput(problems)
	flags.Usage = func() { fmt.Fprint(problems, usage); flags.PrintDefaults() }
	address := flags.String("redis", cmp.Or(os.Getenv("REDIS_URL"), "localhost:6379"),
		"`host:port`, or a redis:// URL; $REDIS_URL unless set, which is the place for a password")
	prefix := flags.String("prefix", "", "the `prefix` that the service gives to core.WithPrefix")
	demo := flags.Bool("demo", false, "a Redis inside the program, with a few locks to look at")
	flags.BoolVar(&c.json, "json", false, "JSON for programs; durations in seconds")
	flags.BoolVar(&c.yes, "yes", false, "force without a question")
	flags.DurationVar(&c.every, "every", 2*time.Second, "watch looks again after this `duration`")
	words, err := parse(flags, args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return nil
	case err != nil:
		return errUsage
	}
	word, argument, err := understand(words, c.every)
	if err != nil {
		fmt.Fprintf(problems, "lockctl: %v\n\n", err)
		flags.Usage()
		return errUsage
	}
	if *demo {
		stop, err := startDemo(address, prefix)
		if err != nil {
			return err
		}
		defer stop()
	}
	if c.store, err = open(ctx, *address, *prefix); err != nil {
		return err
	}
	defer c.close()
	if last, _ := utf8.DecodeLastRuneInString(*prefix); unicode.IsLetter(last) || unicode.IsDigit(last) {
		name := plain.Text(*prefix, 0)
		fmt.Fprintf(problems, "lockctl: -prefix %s ends in no separator: if the service has %[1]s: for a prefix, say -prefix %[1]s:\n", name)
	}
	switch word {
	case "ls":
		return c.list(ctx, argument)
	case "watch":
		return c.watch(ctx, argument)
	case "show":
		return c.show(ctx, argument)
	default:
		return c.force(ctx, argument)
	}
}

// parse reads flags wherever they stand, before the words or behind; -- ends them.
func parse(flags *flag.FlagSet, args []string) (words []string, err error) {
	for {
		if err := flags.Parse(args); err != nil {
			return nil, err
		}
		if flags.NArg() == 0 {
			return words, nil
		}
		words = append(words, flags.Arg(0))
		args = flags.Args()[1:]
	}
}

func understand(args []string, every time.Duration) (word, argument string, err error) {
	if len(args) == 0 {
		return "", "", errors.New("ls, show, watch or force?")
	}
	if every < 100*time.Millisecond {
		return "", "", fmt.Errorf("-every %v: allowed is 100ms or more", every)
	}
	word, rest := args[0], args[1:]
	switch word {
	case "ls", "watch":
		if len(rest) > 1 {
			return "", "", fmt.Errorf("%s takes one beginning of keys at most", word)
		}
	case "show", "force":
		if len(rest) != 1 || rest[0] == "" {
			return "", "", fmt.Errorf("%s takes one key", word)
		}
	default:
		return "", "", fmt.Errorf("%s: there are ls, show, watch and force", word)
	}
	if len(rest) == 1 {
		argument, err = plain.Read(rest[0])
	}
	return word, argument, err
}

func (c *command) list(ctx context.Context, beginning string) error {
	all, err := c.locks(ctx, beginning)
	if err != nil {
		return err
	}
	return c.print(all, 0)
}

// watch lists until it is interrupted; in a terminal each time in the place of the last.
func (c *command) watch(ctx context.Context, beginning string) error {
	height := 0
	if !c.json && isTerminal(c.out) {
		_, height = terminalSize()
	}
	for {
		all, err := c.locks(ctx, beginning)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		if height > 0 {
			fmt.Fprint(c.out, "\x1b[H\x1b[2J") // to the corner, and clear
		}
		if !c.json {
			fmt.Fprintf(c.out, "%s   %s, every %v\n\n", time.Now().Format(time.TimeOnly), c.where, c.every)
		}
		if err := c.print(all, height-4); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(c.every):
		}
		if height == 0 && !c.json {
			fmt.Fprintln(c.out)
		}
	}
}

func (c *command) show(ctx context.Context, key string) error {
	info, err := c.engine.Inspect(ctx, key)
	if err != nil {
		return err
	}
	if c.json {
		err = c.encode(describe(info))
	} else {
		err = printLock(c.out, info)
	}
	if err == nil && !info.Held && !info.Completed {
		err = fmt.Errorf("%s: %w", plain.Text(key, 0), errNotHeld)
	}
	return err
}

func (c *command) force(ctx context.Context, key string) error {
	info, err := c.engine.Inspect(ctx, key)
	if err != nil {
		return err
	}
	name := plain.Text(key, 0)
	if !info.Held && !info.Completed {
		return fmt.Errorf("%s: %w", name, errNotHeld)
	}
	if !c.yes {
		if err := printLock(c.out, info); err != nil {
			return err
		}
		fmt.Fprint(c.out, "\nIts holder goes on working until its next renewal fails, and another may begin at once.\nTake it away? (yes/no) ")
		answer, _ := bufio.NewReader(c.in).ReadString('\n')
		if strings.TrimSpace(answer) != "yes" {
			return fmt.Errorf("%s: left as it is", name)
		}
	}
	if err := c.engine.ForceRelease(ctx, key); err != nil {
		return err
	}
	if c.json {
		return c.encode(map[string]any{"key": key, "forced": true})
	}
	_, err = fmt.Fprintf(c.out, "%s: free\n", name)
	return err
}

// print prints locks; at most most of them, if that is above 0.
func (c *command) print(all []core.Info, most int) error {
	if c.json {
		entries := make([]entry, 0, len(all))
		for _, info := range all {
			entries = append(entries, describe(info))
		}
		return c.encode(entries)
	}
	return printLocks(c.out, all, most)
}

func (c *command) encode(v any) error { return json.NewEncoder(c.out).Encode(v) }
