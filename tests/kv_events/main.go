// The indexer of llm-d-kv-cache, for the tests: it subscribes to a server's KV events, and says what it knows.
//
//	usage: kv-events-indexer ENDPOINT MODEL
//
// Each line on standard input is a JSON array of tokens. The answer is a line with a JSON object: for each pod that holds
// the first blocks of these tokens, how many of them it holds.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/llm-d/llm-d-kv-cache/pkg/kvcache/kvblock"
	"github.com/llm-d/llm-d-kv-cache/pkg/kvevents"
	"github.com/llm-d/llm-d-kv-cache/pkg/kvevents/engineadapter"
	"k8s.io/apimachinery/pkg/util/sets"
)

func holders(ctx context.Context, index kvblock.Index, keys []kvblock.BlockHash) (map[string]int, error) {
	found, err := index.Lookup(ctx, keys, sets.New[string]())
	if err != nil {
		return nil, err
	}
	counts := map[string]int{}
	for i, key := range keys {
		for _, entry := range found[key] {
			if counts[entry.PodIdentifier] == i {
				counts[entry.PodIdentifier]++
			}
		}
	}
	return counts, nil
}

func run(endpoint, model string) error {
	ctx := context.Background()
	index, err := kvblock.NewIndex(ctx, kvblock.DefaultIndexConfig())
	if err != nil {
		return err
	}
	processor, err := kvblock.NewChunkedTokenDatabase(kvblock.DefaultTokenProcessorConfig())
	if err != nil {
		return err
	}
	adapter, err := engineadapter.NewAdapter(engineadapter.EngineTypeVLLM)
	if err != nil {
		return err
	}
	config := kvevents.DefaultConfig()
	pool := kvevents.NewPool(config, index, processor, adapter)
	pool.Start(ctx)
	subscribers := kvevents.NewSubscriberManager(pool)
	if err := subscribers.EnsureSubscriber(ctx, "server", endpoint, config.TopicFilter, true); err != nil {
		return err
	}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var tokens []uint32
		if err := json.Unmarshal(lines.Bytes(), &tokens); err != nil {
			return err
		}
		keys, err := processor.TokensToKVBlockKeys(kvblock.EmptyBlockHash, tokens, model, nil)
		if err != nil {
			return err
		}
		counts, err := holders(ctx, index, keys)
		if err != nil {
			return err
		}
		answer, err := json.Marshal(counts)
		if err != nil {
			return err
		}
		fmt.Println(string(answer))
	}
	return lines.Err()
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: kv-events-indexer ENDPOINT MODEL")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "kv-events-indexer:", err)
		os.Exit(1)
	}
}
