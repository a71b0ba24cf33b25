// The program of docs/read-endpoint.md: the page and this file have the same lines below this one.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(os.Args[1]),
		kgo.ConsumeTopics(os.Args[2]),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	fetches := client.PollRecords(context.Background(), 5)
	if err := fetches.Err(); err != nil {
		log.Fatal(err)
	}
	fetches.EachRecord(func(record *kgo.Record) {
		fmt.Println(record.Partition, record.Offset, string(record.Value))
	})
}
